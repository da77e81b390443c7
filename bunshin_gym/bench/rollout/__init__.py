"""Groups of rollouts, with and without what this package does for them: `bunshin bench rollout`."""
