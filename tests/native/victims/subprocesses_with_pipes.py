"""Filters between pipes: a shell in the middle of a loop, a sed, a sort that has read half of its input."""

import subprocess

from victim import expect, go, ok, ready

sort = subprocess.Popen(["sort", "-n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
loop = subprocess.Popen(
    ["bash", "-c", "n=0; while read x; do n=$((n + x)); echo $n; done; echo end $n"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
)  # fmt: skip
sed = subprocess.Popen(["sed", "-u", "s/$/!/"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
sort.stdin.write("3\n1\n")
sort.stdin.flush()
for process in (loop, sed):
    process.stdin.write("5\n")
    expect(process.stdout.readline().strip("!\n") == "5", "before")
    process.stdin.write("6\n")
ready()
go()
expect(loop.stdout.readline() == "11\n" and sed.stdout.readline() == "6!\n", "what was on its way")
loop.stdin.write("100\n")
sed.stdin.write("100\n")
expect(loop.stdout.readline() == "111\n" and sed.stdout.readline() == "100!\n", "after")
out, _ = sort.communicate("2\n", timeout=20)
expect(out == "1\n2\n3\n", f"sorted: {out!r}")
out, _ = loop.communicate(timeout=20)
expect(out == "end 111\n", f"the loop: {out!r}")
sed.stdin.close()
expect(sed.wait(20) == 0 and loop.returncode == 0 and sort.returncode == 0, "exit codes")
ok()
