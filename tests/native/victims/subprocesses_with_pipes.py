"""Filters that run on both ends of pipes: bc-like helpers, a shell in the middle of a loop, a sort that has read half of its input."""

import subprocess

from victim import expect, go, ok, ready

sort = subprocess.Popen(["sort", "-n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
loop = subprocess.Popen(
    ["bash", "-c", "n=0; while read x; do n=$((n + x)); echo $n; done; echo end $n"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
)  # fmt: skip
awk = subprocess.Popen(
    ["awk", "{ s += $1; print s; fflush() }"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
)
for process in (sort, loop, awk):
    assert process.stdin and process.stdout
sort.stdin.write("3\n1\n")
sort.stdin.flush()
for process in (loop, awk):
    process.stdin.write("5\n")
    expect(process.stdout.readline() == "5\n", "before")
    process.stdin.write("6\n")
ready()
go()
for process in (loop, awk):
    expect(process.stdout.readline() == "11\n", "what was on its way")
    process.stdin.write("100\n")
    expect(process.stdout.readline() == "111\n", "after")
out, _ = sort.communicate("2\n", timeout=20)
expect(out == "1\n2\n3\n", f"sorted: {out!r}")
out, _ = loop.communicate(timeout=20)
expect(out == "end 111\n", f"the loop: {out!r}")
awk.stdin.close()
expect(awk.wait(20) == 0 and loop.returncode == 0 and sort.returncode == 0, "exit codes")
ok()
