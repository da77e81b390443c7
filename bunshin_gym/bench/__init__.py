"""What is measured, and against what: memory over time, forks, and the main job beside its baselines."""
