"""Reports: what a run did, as one page for a browser, or as JSON. `collect` gathers it, `page` writes it."""

from bunshin_gym.report.collect import Mode, Report, Run, TaskTree, Watch
from bunshin_gym.report.page import load, write

__all__ = ["Mode", "Report", "Run", "TaskTree", "Watch", "load", "write"]
