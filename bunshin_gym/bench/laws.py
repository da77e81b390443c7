"""Law 3 by random programs: what rollouts see with a cache is what they see without one.

A program is some rollouts' calls in one order. It is played without a cache, and then with one in each of several ways
that all should make no difference: by state, by history, in a tree that is far too small, with workspaces that are lost
on the way. Calls that look at the clock or at randomness are among them; what they answer is not compared, what follows
them is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bunshin_gym.debt import unreplayable
from bunshin_gym.executor import Executor
from bunshin_gym.tools import ToolCall
from bunshin_gym.tree import Tree
from bunshin_gym.workspace import Workspace, WorkspaceSpec

__all__ = ["CALLS", "WAYS", "Difference", "Laws", "Program", "Way", "check", "programs"]

_TIMEOUT = 60.0
# Two writes within a tick of the kernel have one time, with a cache and without: what compares times waits first.
# What they answer follows from what was done before in the workspace: a command a line. None makes hard links, which
# part where one is written to after a fork (docs/kernel-support.md).
_ANSWERS: Final = r"""
pwd
ls
ls -a ..
cat f
cat f g 2>&1 | wc -l
echo $X $? $#
env | sort | grep -v _=
set -o | grep -c on
echo a > f
echo a >> f
echo b > g
cp f g
mv f g
rm -f f
rm g
ln -s f l
chmod +x f
mkdir -p d
cd d
cd ..
cd /work
rmdir d
rm -r d
stat -c '%F %s %a %h' f
test -L l && readlink l
X=1
X=$((X+1))
unset X
export X
readonly R=1; echo $R
f() { echo f $X; }
f
alias l=ls
set -u
set +u
shopt -s nullglob; echo *.none
trap 'echo bye' EXIT
umask 077
umask
ulimit -n 100; ulimit -n
false
(exit 3)
exit 4
exec true
set -- a b; echo $2
a=(1 2); a+=(3); echo ${a[@]}
printf -v X %03d 7
read Y <<< 'in'; echo $Y
sed -i s/a/c/ f
sort f g 2>/dev/null | uniq -c
tar cf t.tar f && tar tf t.tar
sha256sum f
find /work -type f | sort
echo one & wait; echo two
sleep 300 & echo started
kill %1; wait 2>/dev/null; echo gone
jobs | wc -l
exec 3>log; echo x >&3; cat log
exec 3>&-
cat <<< here > f
grep -c a f
python3 -c 'print(open("f").read())' 2>&1 | tail -n 1
sleep 0.02; printf 'out: f\n\tcp f out; echo built\n' > Makefile
sleep 0.02; make
sleep 0.02; touch f
find /work -newer g | sort
[ f -nt g ]; echo $?
cd /work; git init -q . && git add -A && git status --short
mkfifo p; test -p p
truncate -s 1M big; du -b big
"""
_PYTHON_ANSWERS: Final = """
x = 1
x = x + 1
print(x)
import os; print(sorted(os.listdir()))
open('f', 'w').write('py')
1/0
del x
print(open('f').read())
"""
# What they answer does not: they look at clocks, randomness, process ids or inode numbers.
_LOOKS: Final = """
date +%s%N
echo $RANDOM
echo $$ $BASHPID
date > stamp
echo $SECONDS
ls -li
ps -e | wc -l
mktemp -u
cat /proc/uptime
"""
_PYTHON_LOOKS: Final = """
import time; print(time.time())
import random; print(random.random())
"""


def _shell(commands: str) -> list[ToolCall]:
    return [ToolCall("shell", {"command": command}) for command in commands.strip().splitlines()]


def _python(lines: str) -> list[ToolCall]:
    return [ToolCall("python", {"code": code}) for code in lines.strip().splitlines()]


_FILES: Final = [
    ToolCall("write_file", {"path": "f", "content": "written\n"}),
    ToolCall("read_file", {"path": "f"}),
    ToolCall("read_file", {"path": "none"}),
]
_COMPARED: Final = frozenset(call.key() for call in [*_shell(_ANSWERS), *_python(_PYTHON_ANSWERS), *_FILES])
CALLS: Final = (
    *_shell(_ANSWERS), *_python(_PYTHON_ANSWERS), *_FILES, *_shell(_LOOKS), *_python(_PYTHON_LOOKS),
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """The calls of `rollouts` rollouts, as (which of them, call), and before which of the calls workspaces are lost."""

    rollouts: int
    calls: tuple[tuple[int, ToolCall], ...]
    losses: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Way:
    """A way to play: `options` are the executor's; `tree` makes its tree; `losses`: whether workspaces are lost."""

    name: str
    options: Mapping[str, Any]
    tree: Callable[[], Tree] = Tree
    losses: bool = False


PLAIN: Final = Way("no cache", {"cache": False})
WAYS: Final = (
    Way("state", {"key": "state", "audit": 1.0}),
    Way("history", {"key": "history", "audit": 0.0}),
    Way(
        "state, a small tree, workspaces lost", {"snapshot_seconds": 0.001, "audit": 0.5}, lambda: Tree(20_000, 2), True
    ),
)


@dataclass(frozen=True)
class Difference:
    """The call number `at` of a program gave something else in one of the ways."""

    program: Program
    way: str
    at: int
    wanted: object
    found: object

    def __str__(self) -> str:
        lines = [
            f"{'>' if n == self.at else ' '} {who}: {call}"
            for n, (who, call) in enumerate(self.program.calls[: self.at + 1])
        ]
        return "\n".join([f"{self.way}: {self.found!r} instead of {self.wanted!r} in", *lines])


@dataclass
class Laws:
    """Counts over all programs and ways with a cache. `false` of the `audited` hits were no longer true."""

    programs: int = 0
    calls: int = 0
    hits: int = 0
    by_state: int = 0
    audited: int = 0
    false: int = 0
    calls_false: Counter[str] = field(default_factory=Counter)
    replays: int = 0
    mismatches: int = 0
    differences: list[Difference] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return vars(self) | {
            "calls_false": dict(self.calls_false),
            "differences": [str(one) for one in self.differences],
        }


def programs(count: int, seed: int, rollouts: int = 3, calls: int = 10) -> Iterator[Program]:
    """Random programs of at most `calls` calls a rollout: variations of one sequence, in any order of the rollouts."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        few = rng.sample(CALLS, k=rng.randint(4, 16))
        common = [rng.choice(few) for _ in range(rng.randint(calls // 2, calls))]
        turns = [who for who in range(rollouts) for _ in common]
        rng.shuffle(turns)
        todo = [[call if rng.random() < 0.8 else rng.choice(few) for call in common] for _ in range(rollouts)]
        made = tuple((who, todo[who].pop(0)) for who in turns)
        yield Program(rollouts, made, frozenset(n for n in range(len(made)) if rng.random() < 0.15))


def check(
    made: Sequence[Program] | Iterator[Program],
    engine: str,
    ways: Sequence[Way] = WAYS,
    on_program: Callable[[Laws], None] | None = None,
) -> Laws:
    """Play programs in every way, and say where what was seen differs from what is seen without a cache."""
    found = Laws()
    for program in made:
        wanted = _play(program, engine, PLAIN, found)
        for way in ways:
            for at, (one, other) in enumerate(zip(wanted, _play(program, engine, way, found), strict=True)):
                if one != other:
                    found.differences.append(Difference(program, way.name, at, one, other))
                    break
        found.programs += 1
        if on_program is not None:
            on_program(found)
    return found


def _play(program: Program, engine: str, way: Way, found: Laws) -> list[object]:
    spec = WorkspaceSpec(engine=engine, separate_stderr=False)
    executor = Executor(group=program.rollouts, tree=way.tree(), **way.options)
    try:
        rollouts = [executor.open("laws", lambda: Workspace(spec)) for _ in range(program.rollouts)]
        seen: list[object] = []
        for number, (who, call) in enumerate(program.calls):
            # Below a call that gives something else each time there would be no way back.
            if way.losses and number in program.losses and not unreplayable(rollouts[who].node):
                rollouts[who].drop()
            result = executor.run(rollouts[who], call, _TIMEOUT)
            compared = call.key() in _COMPARED
            seen.append((result.output if compared else "", result.exit_code, result.exit_reason.value))
        executor.auditor.drain(_TIMEOUT)
        for rollout in rollouts:
            rollout.close()
    finally:
        executor.close()
    if way is not PLAIN:
        _count(found, executor)
    return seen


def _count(found: Laws, executor: Executor) -> None:
    stats = executor.stats
    found.calls += stats.calls
    found.hits += stats.hits + stats.waits
    found.by_state += stats.hits_by_state
    found.audited += stats.audits
    found.false += stats.false_hits
    found.calls_false.update(stats.false_hit_calls)
    found.replays += stats.replays
    found.mismatches += stats.replay_mismatches
