"""Trees and reports of any size, as they come out of runs."""

from __future__ import annotations

import random

from bunshin_gym.branch import Branch, cut
from bunshin_gym.report import Mode, Report, Run, TaskTree

HOSTILE = (
    "echo '</script><script>document.title = \"owned\"</script><!--' "
    "\x1b[2J\x07 \u202egnp.exe \ud800 <img src=x onerror=alert(1)>"
)


def tree_of(size: int, seed: int = 0) -> Branch:
    """A tree of so many calls: chains that part now and then, as those of rollouts do."""
    chance = random.Random(seed)
    top = Branch("a task", nodes=[1], snapshot=True)
    tips, number, name = [top], 1, 0
    while number <= size:
        branch = chance.choice(tips[-12:])
        for _ in range(chance.choice((1, 1, 1, 1, 1, 2, 3))):
            call = HOSTILE if number == 7 else f"make part_{number} && ./run --seed {chance.randrange(99)}"
            output = "x" * 1_000_000 if number == 9 else f"building part {number}\nneedle-{number}\n" + "ok\n" * 20
            below = Branch(
                call,
                "shell",
                chance.choice((0, 0, 0, 2)),
                seconds=chance.expovariate(2),
                output=cut(output, 4000),
                size=len(output),
                state=f"{chance.randrange(size):012x}",
                snapshots=int(chance.random() < 0.05),
                steps=[10 * number],
                nodes=[10 * number + 1],
            )
            branch.children.append(below)
            tips.append(below)
            number += 1
            if number > size:
                break
    every = list(top)
    for branch in every:
        if not branch.children:
            branch.ends.append(f"a task: rollout #{(name := name + 1)}")
    for branch in reversed(every):
        branch.rollouts = len(branch.ends) + sum(child.rollouts for child in branch.children)
        if branch is not top:
            branch.run, branch.hits = 1, branch.rollouts - 1
    return top


def report_of(*sizes: int) -> Report:
    """A report of a run with a task of each size, beside a baseline."""
    tasks = []
    lanes = []
    for index, size in enumerate(sizes):
        tree = tree_of(size, index)
        ends = [name for branch in tree for name in branch.ends]
        rollouts = [
            {"name": n, "number": i, "reward": float(i % 2), "failure": "", "seconds": 1.5 * i, "calls": 3}
            for i, n in enumerate(ends)
        ]
        tasks.append(TaskTree(f"task {index}", tree, rollouts))
        for i, name in enumerate(ends):
            spans = [["open", 0, 40_000, 0], ["fork", 1_000, 30_000, 0], ["think", 40_000, 300_000, 0]]
            spans += [
                ["call", 340_000 + i, 500_000, 1, "run"],
                ["run", 345_000 + i, 450_000, 1],
                ["judge", 900_000, 90_000, 2],
            ]
            lanes.append({"name": name, "task": index, "spans": spans})
    phases = {"run": 12.0, "think": 30.0, "fork": 0.4, "cache": 0.2, "saved": 20.0, "something new": 1.0}
    memory = [(t / 10, 30_000_000 + 900_000 * t, 10_000_000) for t in range(50)]
    stats = {
        "calls": 100,
        "hits": 60,
        "waits": 4,
        "misses": 36,
        "saved_seconds": 20.0,
        "forks": 9,
        "snapshots": 3,
        "prepared": 1,
    }
    ours = Mode("bunshin", 5.0, 2, stats, phases, {"audit": 1.0}, memory, 74_000_000, 2e8)
    theirs = Mode(
        "warm pool",
        9.0,
        2,
        {"calls": 100},
        {"run": 32.0, "think": 30.0},
        {},
        [(t, 3 * a, 0) for t, a, _ in memory],
        2e8,
        9e8,
    )
    return Report("a report", ["here"], [Run("one", tasks=tasks, modes=[ours, theirs], lanes=lanes)])
