"""Work as it is in practice: calls that take seconds, in workspaces where about 200 MB live.

Three tasks: a C library to build and mend, a package with a slow test suite, a report over a million rows.
"""

from bunshin_gym.envs.practice import build_c_project, data_job, test_suite

TASKS = (build_c_project.TASK, test_suite.TASK, data_job.TASK)

__all__ = ["TASKS"]
