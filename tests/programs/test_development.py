"""What developers run: git waiting for its editor, make in the middle of a build, a debugger, sanitizers."""

from __future__ import annotations

import functools
import subprocess

import pytest
from programs.scene import SOURCES, Branch, Scene, build_folder, together

pytestmark = [pytest.mark.engine("native"), pytest.mark.timeout(120)]


@pytest.mark.needs("git")
def test_git_in_an_interactive_rebase(scene: Scene) -> None:
    env = {
        "HOME": "/work",
        "GIT_EDITOR": "/work/editor",
        "GIT_SEQUENCE_EDITOR": "sed -i 's/^pick \\(.* two\\)/reword \\1/; s/^pick \\(.* four\\)/edit \\1/'",
    }
    env |= {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "a"), ("EMAIL", "a@b"))
    }
    source = scene.source(env=env)
    source.put(
        "/work/editor",
        '#!/bin/sh\necho here >/work/asked\nread word </work/words || exit 1\necho "$word" >"$1"\n',
        0o755,
    )
    source.sh(
        "mkfifo /work/words; git init -q -b main /work/repo; cd /work/repo && for i in one two three four five; do "
        "echo $i >>file; echo $i >$i; git add -A; git commit -qm $i; done"
    )
    source.start("git -C /work/repo rebase -i HEAD~4")
    source.until("cat /work/asked", "here")
    branches = scene.fork(source, "git --version", "an interactive rebase, its editor waiting to reword a commit")

    def go_on(branch: Branch) -> None:
        n = branch.number
        git = "git -C /work/repo"
        before = branch.sh(f"{git} rev-parse main")
        if n == 2:  # this one gives it up: the editor's end of file is its refusal
            branch.sh(": >/work/words")
            branch.until("! pgrep -x git >/dev/null")
            branch.sh(f"{git} rebase --abort")
            assert branch.sh(f"{git} rev-parse HEAD") == before
        else:
            branch.sh(f"echo 'two of branch {n}' >/work/words")
            branch.until("! pgrep -x git >/dev/null")
            assert "four" in branch.sh(f"{git} status"), "it has not stopped to edit"
            branch.sh(f"cd /work/repo && echo {n} >own && git add own && git commit -q --amend --no-edit")
            branch.sh(f"GIT_EDITOR=true {git} rebase --continue")
            subjects = branch.sh(f"{git} log --format=%s --reverse").splitlines()
            assert subjects == ["one", f"two of branch {n}", "three", "four", "five"], subjects
            assert branch.sh(f"{git} show main:own") == f"{n}\n"
        assert branch.sh(f"{git} fsck --strict 2>&1 | grep -v dangling; {git} status --porcelain") == ""
        assert branch.sh(f"{git} show HEAD:file").split() == ["one", "two", "three", "four", "five"]

    together(branches, go_on)


@pytest.mark.needs("gcc", "make")
def test_make_in_the_middle_of_a_build(scene: Scene) -> None:
    source = scene.source()
    count = 8
    for i in range(count):
        body = "".join(
            f"long f{i}_{j}(long x) {{ for (int i = 0; i < {j}; i++) x = x * {j} + i % 7; return x; }}\n"
            for j in range(100)
        )
        source.put(
            f"/work/build/part{i}.c", body + f"long part{i}(void) {{ return f{i}_3({i}) + f{i}_99(1) % 1000; }}\n"
        )
    parts = " ".join(f"part{i}.o" for i in range(count))
    calls = " + ".join(f"part{i}()" for i in range(count))
    declarations = "".join(f"long part{i}(void);" for i in range(count))
    source.put(
        "/work/build/main.c",
        f'#include <stdio.h>\n#include "word.h"\n{declarations}\n'
        f'int main(void) {{ printf("%d %ld\\n", WORD, {calls}); }}\n',
    )
    source.put("/work/build/word.h", "#error nobody has said the word\n")
    source.put(
        "/work/build/Makefile",
        f"prog: main.o {parts}\n\t$(CC) -o $@ $^\nmain.o: main.c word.h {parts}\n\t$(CC) -c -o $@ main.c\n"
        "%.o: %.c\n\t$(CC) -O2 -c -o $@ $<\n",
    )
    source.start("make -C /work/build -j2 CC=gcc")
    source.until("ls /work/build/*.o | wc -l; pgrep -c cc1", r"^[1-6]\n[12]\n")
    branches = scene.fork(
        source, 'echo "$(make --version | head -1), gcc $(gcc -dumpfullversion)"', "make -j2, two compilers at work"
    )

    def go_on(branch: Branch) -> str:
        branch.put("/work/build/word.h", f"#define WORD {branch.number}\n")
        branch.until("! pgrep -x make >/dev/null", patience=60)
        word, value = branch.sh("/work/build/prog").split()
        assert word == str(branch.number)
        assert branch.sh("make -C /work/build -q; echo $?") == "0\n", "something is to be made again"
        return value

    values = together(branches, go_on)
    assert len(set(values)) == 1


@pytest.mark.needs("gdb", "gcc")
def test_gdb_is_refused_by_name_and_then_well(scene: Scene) -> None:
    source = scene.source()
    source.put(
        "/work/a.c",
        "#include <stdio.h>\nint n = 1;\nint next(int x) { return x * 3; }\n"
        'int main(void) { for (int i = 0; i < 3; i++) n = next(n); printf("%d\\n", n); }\n',
    )
    source.sh("gcc -g -O0 -o /work/a /work/a.c")
    source.py("""
import subprocess
command = ["gdb", "-q", "-nx", "--interpreter=mi2", "/work/a"]
gdb = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def until(word):
    lines = []
    while word not in (line := gdb.stdout.readline()): assert line, lines; lines.append(line)
    return line
def say(text): gdb.stdin.write(text + "\\n"); gdb.stdin.flush()
say("-break-insert next"); until("^done"); say("-exec-run"); assert "breakpoint-hit" in until("*stopped")
""")
    scene.refused(source, "gdb --version | head -1", "a child stopped at a breakpoint", "a debugger's hold")
    source.py("""
say("-data-evaluate-expression x"); assert 'value="1"' in until("^done")
say("-exec-continue"); assert "breakpoint-hit" in until("*stopped")
say("-data-evaluate-expression x"); assert 'value="3"' in until("^done")
say("-break-delete"); until("^done"); say("-exec-continue"); assert "exited-normally" in until("*stopped")
""")
    # With the program gone, the debugger is a program like others.
    branches = scene.fork(source, "gdb --version | head -1", "the program it ran has ended")
    together(
        branches,
        lambda branch: branch.py(f"""
say("-gdb-set var $mine = {branch.number}"); until("^done")
say("-break-insert main"); until("^done"); say("-exec-run"); assert "breakpoint-hit" in until("*stopped")
say("-data-evaluate-expression $mine+n"); assert 'value="{branch.number + 1}"' in until("^done")
say("-gdb-exit"); assert gdb.wait(30) == 0
"""),
    )


@functools.cache
def sanitized(kind: str) -> bytes:
    target = build_folder() / f"sanitized-{kind}"
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-g",
        "-pthread",
        f"-fsanitize={kind}",
        "-o",
        str(target),
        str(SOURCES / "streams.cpp"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return target.read_bytes()


@pytest.mark.needs("g++")
@pytest.mark.parametrize("kind", ["address", "thread", "undefined"])
def test_a_cpp_program_under_a_sanitizer(scene: Scene, kind: str) -> None:
    source = scene.source()
    source.put("/work/streams", sanitized(kind), 0o755)
    source.sh("mkfifo /work/in; exec 6<>/work/in")
    # The thread sanitizer of this compiler knows no kernel with more than 28 bits of randomness.
    source.put(
        "/work/run", "#!/bin/sh\nexec $(setarch -R true && echo setarch -R) /work/streams </work/in >/work/out\n", 0o755
    )
    source.start("/work/run")
    source.sh("echo add alpha 1 >&6; echo add beta 2 >&6; printf 'add gam' >&6")
    source.until("cat /work/out", r"beta = 2\n")
    branches = scene.fork(
        source, f"echo g++ $(g++ -dumpfullversion), -fsanitize={kind}",
        "iostreams with half a line read, four threads over a locked map and atomics, terabytes reserved",
    )  # fmt: skip

    def go_on(branch: Branch) -> None:
        n = branch.number
        branch.sh(f"echo 'ma {n}' >&6; echo sum >&6; echo work >&6")
        branch.until("cat /work/out", rf"gamma = {n}\nsum {3 + n}\nworked 80000\n")
        mistake = {"address": "overflow", "thread": "race", "undefined": "shift"}[kind]
        branch.sh(f"echo {mistake} >&6; echo quit >&6")
        branch.until("! pgrep -x streams >/dev/null")
        expected = {"address": "heap-buffer-overflow", "thread": "data race", "undefined": "shift exponent 40"}[kind]
        log = branch.get("/work/run.log")
        assert expected in log and "streams.cpp" in log, log[-2000:]

    together(branches, go_on)
