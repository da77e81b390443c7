"""The tasks that ship with the package: small and real, each with a verifier that is hard to please.

Each lives in a folder of its own (task.py, README.md, and files/ where it needs some) and exports a `TASK`;
`bunshin_gym.Taskset.load("basic")` finds them all. A task's module also holds `WRONG`: scripts by the mistake or the
trick in them, none of which may be rewarded.
"""
