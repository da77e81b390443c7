"""A C library with two faults; the verifier builds its sources with a driver of its own and compares what it prints."""

from __future__ import annotations

import random
from pathlib import PurePosixPath

from bunshin_gym.envs import _judge
from bunshin_gym.envs.practice import _live
from bunshin_gym.habits import Attempt, Habits
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

from . import project

FOLDER = "/work/cask"
CHECKED = "/tmp/verify/cask"
FILES = {f"{FOLDER}/{path}": content for path, content in project.make().items()}
CHECKED_TYPES = tuple(name for name, kind in project.TYPES.items() if kind != "int8_t")

INSTRUCTION = f"""\
{FOLDER} is a C library of typed containers whose tests fail (make test). Find the faults and correct the library, so
that it does what README.md there says, for every type. Leave the tests as they are. Submit when you are done."""

# One program for all heaps, and one of each other kind: numbers in, what was taken out again.
_PART = """\
#include "@P@.h"
static void use_@P@(void)
{
    @P@ it;
    @P@_init(&it);
    for (int i = 0; i < COUNT; i++)
        if (!@P@_add(&it, (@TYPE@)numbers[i]))
            printf("refused ");
    printf("@P@ %zu %u", it.count, it.grown);
    @TYPE@ item;
    while (@P@_take(&it, &item))
        printf(" %.0f", (double)item);
    printf("\\n");
    @P@_free(&it);
}
"""


def driver(numbers: list[int], parts: list[tuple[str, str]]) -> str:
    """A C program that puts `numbers` into containers and prints what comes out."""
    text = f"#include <stdio.h>\nenum {{ COUNT = {len(numbers)} }};\n"
    text += f"static const int numbers[] = {{{', '.join(map(str, numbers))}}};\n"
    for kind, name in parts:
        text += _PART.replace("@P@", f"{kind}_{name}").replace("@TYPE@", project.TYPES[name])
    calls = "".join(f"    use_{kind}_{name}();\n" for kind, name in parts)
    return f"{text}int main(void)\n{{\n{calls}    return 0;\n}}\n"


def growths(count: int) -> int:
    """How often a buffer grows until it holds `count` items."""
    capacity = times = 0
    while capacity < count:
        capacity = capacity + capacity // 2 if capacity else 8
        times += 1
    return times


def expected(numbers: list[int], parts: list[tuple[str, str]]) -> str:
    """What the driver must print."""
    lines = []
    for kind, name in parts:
        items = sorted(set(numbers)) if kind == "set" else numbers
        out = {"heap": sorted(items), "vector": items[::-1], "set": items[::-1]}[kind]
        words = [f"{kind}_{name}", len(items), growths(len(items)), *out]
        lines.append(" ".join(map(str, words)))
    return "".join(f"{line}\n" for line in lines)


def verify(ws: Workspace) -> float:
    """1.0 where the tests are untouched and the containers are right on numbers of our own, else 0.0."""
    if not _judge.unchanged(ws, {path: content for path, content in FILES.items() if "/test/" in path}):
        return 0.0
    rng = random.Random(11)
    numbers = [int(rng.random() * 110) for _ in range(240)]
    parts = [("heap", name) for name in CHECKED_TYPES] + [("vector", "u16"), ("set", "i64")]
    needed = ["include/grow.h"]
    needed += [path for kind, name in parts for path in (f"include/{kind}_{name}.h", f"src/{kind}_{name}.c")]
    for path in needed:
        content = _judge.read(ws, f"{FOLDER}/{path}")
        if content is None:
            return 0.0
        ws.write_file(f"{CHECKED}/{path}", content)
    ws.write_file(f"{CHECKED}/main.c", driver(numbers, parts).encode())
    sources = [path for path in needed if PurePosixPath(path).suffix == ".c"]
    command = ["/usr/bin/gcc", "-std=c11", "-Iinclude", "-o", "main", "main.c", *sources]
    if _judge.execute(ws, command, cwd=CHECKED, timeout=60) is None:
        return 0.0
    return float(_judge.execute(ws, [f"{CHECKED}/main"], cwd=CHECKED) == expected(numbers, parts))


def grow(value: str) -> str:
    """A command that makes cask_grow return `value`."""
    return f"sed -i '/cask_grow/,/^}}/s/return .*;/return {value};/' include/grow.h".replace("/ 2;", "\\/ 2;")


GROW = grow("old < CASK_SMALLEST ? CASK_SMALLEST : old + old / 2")
DOWN = "sed -i 's/child + 1 [<>]=* it->count/child + 1 < it->count/' src/heap_*.c"
BOTH = """\
python3 - <<'EOF'
import pathlib
header = pathlib.Path("include/grow.h")
text = header.read_text()
head, _, rest = text.partition("cask_grow(size_t old)\\n{\\n    return ")
header.write_text(
    head + "cask_grow(size_t old)\\n{\\n    return old < CASK_SMALLEST ? CASK_SMALLEST : old + old / 2"
    + rest[rest.index(";"):]
)
for source in pathlib.Path("src").glob("heap_*.c"):
    text = source.read_text()
    source.write_text(text.replace("child + 1 > it->count", "child + 1 < it->count"))
EOF"""
ONE_HEAP = "sed -i 's/child + 1 [<>]=* it->count/child + 1 < it->count/' src/heap_i32.c src/heap_i8.c"

CHECK = "make -j2 test 2>&1 | tail -4"
LOOK = (f"cd {FOLDER} && ls", "cat README.md", "make -j2 2>&1 | tail -3", "make test 2>&1 | tail -12")
CLOSE = "make clean && make -j2 test 2>&1 | tail -1"

WRONG = {
    "the heaps are forgotten": (*LOOK, GROW, CHECK),
    "only the heaps at hand": (*LOOK, GROW, ONE_HEAP, CHECK),
    "the buffers grow by a constant": (*LOOK, grow("old + CASK_SMALLEST"), DOWN, CHECK),
    "the tests are emptied": (*LOOK, "for t in test/*.c; do echo 'int main(void) { return 0; }' > $t; done", CHECK),
}

HABITS = Habits(
    opening=(
        (LOOK[0], f"cd {FOLDER} && ls -R | head -30", f"cd {FOLDER} && find . -name '*.h' | sort | head -20"),
        (LOOK[1], "cat README.md Makefile", "head -20 README.md"),
        (LOOK[2], "make 2>&1 | tail -5", "make -j2 all 2>&1 | tail -1"),
        (LOOK[3], "make test 2>&1 | tail -3", "make -j2 test 2>&1 | grep failed | head -20"),
    ),
    reading=(
        "cat include/grow.h",
        "cat src/heap_i32.c",
        "sed -n 1,60p src/vector_i32.c",
        "cat test/test_heap_i32.c",
        "grep -rn cask_grow src | head -5",
    ),
    attempts=(
        Attempt((GROW,), right=False, weight=3),
        Attempt((GROW, DOWN), right=True, weight=3),
        Attempt((BOTH,), right=True, weight=2),
        Attempt((grow("old * 2"),), right=False, weight=2),
        Attempt((grow("old + CASK_SMALLEST"), DOWN), right=False, weight=1),
    ),
    check=(CHECK, "make test 2>&1 | tail -4", "make -j2 2>&1 | tail -1; make test | tail -1"),
    again=(
        "build/test_heap_i32; build/test_vector_i32",
        "sed -n '/static void down/,/^}/p' src/heap_i32.c",
        "grep -n -A4 'cask_grow' include/grow.h",
        "make test 2>&1 | grep -c failed:",
    ),
    closing=(CLOSE, "make -j2 test 2>&1 | tail -1"),
    patience=3,
)

TASK = Task(
    name="build_c_project",
    instruction=INSTRUCTION,
    image=_live.image,
    files={**FILES, **_live.files()},
    setup=tuple(_live.start(FOLDER)),
    verifier=verify,
    step_limit=40,
    call_timeout=300.0,
    spec={"env": _live.environment()},
    solution=(*LOOK, GROW, DOWN, CHECK, CLOSE),
    wrong=WRONG["the heaps are forgotten"],
    habits=HABITS,
)
