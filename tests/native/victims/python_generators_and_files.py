"""An interpreter in mid-flight: generators, open files with buffers, exceptions being handled, a random state."""

import random
import tempfile

from victim import HERE, expect, go, ok, ready


def count():
    n = 0
    while True:
        sent = yield n
        n = sent if sent is not None else n + 1


generator = count()
next(generator)
generator.send(41)
random.seed(5)
random.random()
state = random.getstate()
text = open(HERE / "text", "w+")  # noqa: SIM115
text.write("buffered, not written")
nameless = tempfile.TemporaryFile()  # noqa: SIM115
nameless.write(b"x" * 100000)
nameless.seek(50000)
with open(HERE / "lines", "w") as lines_out:
    lines_out.writelines(f"line {n}\n" for n in range(10000))
lines = open(HERE / "lines")  # noqa: SIM115
for _ in range(5000):
    next(lines)
try:
    raise ValueError("in flight")
except ValueError as error:
    ready()
    go()
    expect(error.args == ("in flight",), "the exception")
expect(next(generator) == 42, "the generator")
expect(random.getstate() == state, "the random state")
text.write(" until now")
text.seek(0)
expect(text.read() == "buffered, not written until now", "the buffer")
expect(nameless.read() == b"x" * 50000, "the nameless file")
expect(next(lines) == "line 5000\n" and sum(1 for _ in lines) == 4999, "the lines")
ok()
