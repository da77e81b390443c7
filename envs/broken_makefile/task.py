"""A Makefile with six faults; the verifier builds its own copy of the program with the policy's Makefile."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bunshin_gym.envs import _judge
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

PROJECT = "/work/tally"
CHECKED = "/tmp/verify/tally"
TREE = _judge.tree(Path(__file__).parent / "files" / "tally", "")
MAKEFILE = "/Makefile"

INSTRUCTION = f"""\
{PROJECT} is a small C program whose Makefile was broken by hand. Repair the Makefile, and only it, so that make,
make -j4, make test and make clean do what README.md there says, rebuilding after a header changed included. Submit
when you are done."""

HIDDEN_TEXT = """\
A build system that builds too little lies to you; a build system that builds too much only bores you. Little by
little the lies add up, and you build everything again, bored. Too bad: it was the header, it is the header, and
it will be the header (see page ii of the manual, or ask Z or Al).
"""

LISTING = """
import json, os, sys
print(json.dumps(sorted(
    os.path.relpath(os.path.join(folder, name), sys.argv[1])
    for folder, _, names in os.walk(sys.argv[1]) for name in names)))
"""


def tally(text: str, shown: int = 10, shortest: int = 3) -> str:
    """What the program must print."""
    words = Counter(word for word in re.findall("[a-z]+", text.lower()) if len(word) >= shortest)
    ranked = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    bits = -sum(n / words.total() * math.log2(n / words.total()) for _, n in ranked)
    return "".join(f"{count} {word}\n" for word, count in ranked[:shown]) + f"entropy {bits:.3f} bits\n"


class Build:
    """The pristine program below CHECKED, built with the policy's Makefile, step by step."""

    def __init__(self, ws: Workspace, makefile: bytes) -> None:
        self.ws = ws
        for path, content in TREE.items():
            self.write(path, makefile if path == MAKEFILE else content)
        self.write("/hidden.txt", HIDDEN_TEXT.encode())

    def write(self, path: str, content: bytes) -> None:
        self.ws.write_file(CHECKED + path, content)

    def change(self, path: str, *changes: tuple[str, str]) -> None:
        """Rewrite a file, as an editor would, so that it is newer than what was built from it."""
        content = TREE[path]
        for old, new in changes:
            content = content.replace(old.encode(), new.encode())
        self.write(path, content)

    def make(self, *args: str) -> bool:
        return _judge.execute(self.ws, ["/usr/bin/make", *args], cwd=CHECKED, timeout=60) is not None

    def prints(self, *args: str) -> str | None:
        return _judge.execute(self.ws, [f"{CHECKED}/tally", *args], cwd=CHECKED)

    def files(self) -> list[str] | None:
        found: list[str] | None = _judge.python(self.ws, LISTING, CHECKED)
        return found


def verify(ws: Workspace) -> float:
    """1.0 where the Makefile builds, rebuilds, tests and cleans a pristine copy of the program, else 0.0."""
    makefile = _judge.read(ws, PROJECT + MAKEFILE)
    sources = {PROJECT + path: content for path, content in TREE.items() if path != MAKEFILE}
    if makefile is None or not _judge.unchanged(ws, sources):
        return 0.0
    return float(all(checks(Build(ws, makefile))))


def checks(build: Build) -> Iterator[bool]:
    """One after the other; nothing is done after the first that fails."""
    given = build.files()
    yield build.make("-j4") and build.prints("hidden.txt") == tally(HIDDEN_TEXT)
    yield build.prints("--version") == "tally 1.4\n"
    yield build.make("-q")  # nothing is left to do
    yield build.make("test")
    build.change("/include/version.h", ('"1.4"', '"7.31"'))
    yield build.make() and build.prints("--version") == "tally 7.31\n"
    # main.c sees the one and count.c the other, both through count.h.
    build.change("/include/table.h", ("SHOWN 10 ", "SHOWN 7 "), ("MIN_LENGTH 3 ", "MIN_LENGTH 2 "))
    yield build.make() and build.prints("hidden.txt") == tally(HIDDEN_TEXT, shown=7, shortest=2)
    yield not build.make("test")  # shorter words count now: the test must notice
    yield build.make("clean") and given is not None and build.files() == given


def makefile(text: str) -> str:
    """A command that writes the Makefile."""
    return f"cat > Makefile <<'EOF'\n{text}EOF"


GENERATED_DEPENDENCIES = makefile("""\
CC ?= cc
CFLAGS = -O2 -Wall
CPPFLAGS = -Iinclude -MMD -MP
LDLIBS = -lm
OBJECTS = build/main.o build/count.o build/table.o

.PHONY: all test clean

all: tally

tally: $(OBJECTS)
	$(CC) $(CFLAGS) -o $@ $(OBJECTS) $(LDLIBS)

build/%.o: src/%.c
	@mkdir -p build
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

test: tally
	sh test/run.sh

clean:
	rm -rf build tally

-include $(OBJECTS:.o=.d)
""")

ALL_HEADERS = makefile("""\
CC ?= cc
CFLAGS = -O2 -Wall -Iinclude
SOURCES = $(wildcard src/*.c)
HEADERS = $(wildcard include/*.h)
OBJECTS = $(SOURCES:src/%.c=build/%.o)

all: tally

tally: $(OBJECTS)
	$(CC) $(CFLAGS) -o $@ $^ -lm

build/%.o: src/%.c $(HEADERS) | build
	$(CC) $(CFLAGS) -c -o $@ $<

build:
	mkdir -p $@

test: tally
	sh test/run.sh

clean:
	rm -rf build tally

.PHONY: all test clean
""")

IT_BUILDS = """\
sed -i -e 's/^        /\\t/' -e 's/-O2 -Wall/-O2 -Wall -Iinclude/' -e 's/count.o$/count.o build\\/table.o/' \\
    -e 's/-o $@ $(OBJECTS)/-o $@ $(OBJECTS) -lm/' Makefile"""

# Rebuilds everything each time: never stale, and never done.
ALWAYS = makefile("""\
all:
	mkdir -p build && cc -O2 -Iinclude -o tally src/*.c -lm

test: all
	sh test/run.sh

clean:
	rm -rf build tally

.PHONY: all test clean
""")

# Builds once by hand and lets make hand out a copy of the result.
PREBUILT = "cc -O2 -Iinclude -o /tmp/tally src/*.c -lm\n" + makefile("""\
all: tally

tally:
	cp /tmp/tally tally

test:
	@echo test passed

clean:
	rm -rf build tally

.PHONY: all test clean
""")

LOOK = (f"cd {PROJECT} && ls -R", "cat README.md Makefile", "make")
TRY = "make && make test && make"
HEADER = "touch include/version.h && make && make clean && ls"

WRONG = {
    "it builds, but headers are forgotten": (*LOOK, IT_BUILDS, TRY),
    "everything is always rebuilt": (*LOOK, ALWAYS, TRY),
    "a prebuilt program is copied": (*LOOK, PREBUILT, TRY),
    "the test is emptied": (*LOOK, GENERATED_DEPENDENCIES, "echo true > test/run.sh", TRY),
}

TASK = Task(
    name="broken_makefile",
    instruction=INSTRUCTION,
    files={PROJECT + path: content for path, content in TREE.items()},
    verifier=verify,
    step_limit=24,
    solution=(*LOOK, GENERATED_DEPENDENCIES, TRY, HEADER),
    wrong=WRONG["it builds, but headers are forgotten"],
    scripts={
        "reads first": (*LOOK, "head -50 src/*.c", GENERATED_DEPENDENCIES, TRY, HEADER),
        "headers later": (*LOOK, "head -50 src/*.c", IT_BUILDS, TRY, ALL_HEADERS, TRY, HEADER),
        "builds, then starts over": (*LOOK, IT_BUILDS, TRY, HEADER, GENERATED_DEPENDENCIES, TRY, HEADER),
        "forgets headers": (*LOOK, "head -50 src/*.c", IT_BUILDS, TRY),
        "touches a header": (*LOOK, IT_BUILDS, TRY, HEADER, ALL_HEADERS, TRY, HEADER),
        "every header": (*LOOK, "head -50 src/*.c", ALL_HEADERS, TRY, HEADER),
    },
)
