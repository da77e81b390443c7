"""Which programs take a frozen clock and seeded randomness: what test_frozen.py tries, and docs/frozen.md shows.

`PYTHONPATH=tests python -m native.frozen_programs` prints the page's table.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

# Compiled by setup(): prints the time, and what it draws.
C_SOURCE = r"""
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
int main(int count, char **word) {
    unsigned drawn;
    if (count > 1 && !strcmp(word[1], "time"))
        return printf("%ld\n", (long)time(NULL)) < 0;
    return getrandom(&drawn, sizeof drawn, 0) < 0 || printf("%u\n", drawn) < 0;
}
"""
# Where the clock is to stand. Later than now: were it earlier, tools would complain of files from the future.
AT = 2_000_000_000

UUID_SOURCE = r"""
#include <stdio.h>
void uuid_generate(unsigned char *ret);
int main(void) {
    unsigned char made[16];
    uuid_generate(made);
    return fwrite(made, 16, 1, stdout) != 1;
}
"""
GO_SOURCE = r"""
package main
import ("crypto/rand"; "fmt"; "os"; "time")
func main() {
    b := make([]byte, 8)
    rand.Read(b)
    if len(os.Args) > 1 { fmt.Println(time.Now().Unix()) } else { fmt.Println(b) }
}
"""
JAVA_SOURCE = r"""
public class T { public static void main(String[] a) { switch (a[0]) {
    case "time": System.out.println(System.currentTimeMillis() / 1000); break;
    case "uuid": System.out.println(java.util.UUID.randomUUID()); break;
    default: System.out.println(Math.random());
} } }
"""


@dataclass(frozen=True)
class Program:
    """`clock` prints seconds since 1970, `random` what was drawn; each with whether it takes what is frozen."""

    name: str
    clock: tuple[str, bool] | None = None
    random: tuple[str, bool] | None = None
    needs: tuple[str, ...] = ()
    setup: str = ""
    thorough: bool = False
    why: str = ""


def _files(**texts: str) -> str:
    return "mkdir -p /tmp/p && cd /tmp/p && " + " && ".join(
        f"printf %s {shlex.quote(text)} > {name.replace('_', '.')}" for name, text in texts.items()
    )


PROGRAMS = (
    Program("bash: EPOCHSECONDS, RANDOM, SRANDOM, in subshells too", ("echo $EPOCHSECONDS", True),
            ("echo $RANDOM $SRANDOM $(echo $RANDOM) $(echo $SRANDOM); bash -c 'echo $RANDOM'", True)),
    Program("date, mktemp, shuf, sort -R", ("date +%s", True),
            ("mktemp; mktemp -d; mktemp -u; shuf -i 1-99999 -n 3; seq 99 | sort -R | md5sum", True)),
    Program("/dev/urandom, /dev/random",
            random=("head -c 8 /dev/urandom | od -An -x; od -An -N 8 -x </dev/random", True)),
    Program("/proc/sys/kernel/random/uuid", random=("cat /proc/sys/kernel/random/uuid", True)),
    Program("python3: time, datetime; random, os.urandom, uuid, secrets, tempfile, hashes of text",
            ("python3 -c 'import datetime as d; print(int(d.datetime.now().timestamp()))'", True),
            ("python3 -c 'import os, random as r, secrets as s, tempfile as t, uuid as u\n"
             "print(os.urandom(4), r.random(), s.token_hex(4), t.mktemp(), u.uuid4(), hash(str()+chr(65)))'", True)),
    Program("perl: time; rand, the order of keys", ("perl -e 'print time'", True),
            ("perl -e 'print rand, keys %{{map {$_ => 1} 1..20}}'", True), ("perl",)),
    Program("ruby: Time; SecureRandom", ("ruby -e 'puts Time.now.to_i'", True),
            ("ruby -r securerandom -e 'puts SecureRandom.hex(8)'", True), ("ruby",)),
    Program("ruby: Kernel#rand", random=("ruby -e 'puts rand'", False), needs=("ruby",),
            why="its seed has the process id in it"),
    Program("node: Date; Math.random, crypto", ("node -p 'Math.floor(Date.now() / 1000)'", True),
            ("node -p 'Math.random() + crypto.randomUUID()'", True), ("node",)),
    Program("java: currentTimeMillis, Instant; SecureRandom, UUID", ("java -cp /tmp/p T time", True),
            ("java -cp /tmp/p T uuid", True), ("javac",), _files(T_java=JAVA_SOURCE) + " && javac T.java", True),
    Program("java: Math.random, new Random()", random=("java -cp /tmp/p T random", False), needs=("javac",),
            setup=_files(T_java=JAVA_SOURCE) + " && javac T.java", thorough=True,
            why="its seed is the monotonic clock"),
    Program("sqlite3: date('now'); random(), randomblob()",
            ("""sqlite3 :memory: "select strftime('%s', 'now')" """, True),
            ("sqlite3 :memory: 'select random(), hex(randomblob(8))'", True), ("sqlite3",)),
    Program("libuuid: uuid_generate, uuidgen", random=("/tmp/p/uuid | od -An -x", True), needs=("gcc",),
            setup=_files(u_c=UUID_SOURCE) + " && gcc -o uuid u.c -l:libuuid.so.1"),
    Program("openssl: rand, genpkey, genrsa, req -x509",
            random=("openssl rand -hex 8; openssl genpkey -algorithm ed25519; "
                    "openssl req -x509 -newkey rsa:1024 -nodes -subj /CN=a -keyout - 2>/dev/null", True),
            needs=("openssl",)),
    Program("find -mmin, -mtime (but for the times of the files)",
            (f"touch -d @{AT - 60} /tmp/o; find /tmp/o -mmin -5 -printf {AT}", True)),
    Program("git: the dates of commits",
            ("cd $(mktemp -d) && git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m c && "
             "git log --format=%ct", True), needs=("git",)),
    Program("awk: srand(), and so rand()", ("awk 'BEGIN { srand(); print srand() }'", True)),
    Program("C, dynamic: time, getrandom", ("/tmp/p/dynamic time", True), ("/tmp/p/dynamic", True), ("gcc",),
            _files(a_c=C_SOURCE) + " && gcc -o dynamic a.c"),
    Program("the same, setuid", ("/tmp/p/setuid time", True), ("/tmp/p/setuid", True), ("gcc",),
            _files(a_c=C_SOURCE) + " && gcc -o setuid a.c && chmod u+s setuid"),
    Program("the same with AddressSanitizer", ("/tmp/p/asan time", True), ("/tmp/p/asan", True), ("gcc",),
            _files(a_c=C_SOURCE) + " && gcc -fsanitize=address -o asan a.c", True),
    Program("the same, static", ("/tmp/p/static time", False), ("/tmp/p/static", False), ("gcc",),
            _files(a_c=C_SOURCE) + " && gcc -static -o static a.c", why="nothing is loaded into it"),
    Program("go: time.Now, crypto/rand", ("/tmp/p/go time", False), ("/tmp/p/go", False), ("go",),
            _files(m_go=GO_SOURCE) + " && HOME=/tmp GO111MODULE=off go build -o go m.go", True,
            why="it asks the kernel itself"),
    Program("with the environment cleared: env -i", ("env -i date +%s", False),
            ("env -i head -c 8 /dev/urandom | od -An -x", False), why="nothing is loaded into it"),
    Program("modification times of files", ("touch /tmp/now; stat -c %Y /tmp/now", False), why="they are the kernel's"),
)  # fmt: skip


def _cell(tried: tuple[str, bool] | None) -> str:
    return "" if tried is None else "yes" if tried[1] else "**no**"


def render() -> str:
    lines = ["| program | clock | randomness | why not |", "|---|---|---|---|"]
    lines += [f"| {p.name} | {_cell(p.clock)} | {_cell(p.random)} | {p.why} |" for p in PROGRAMS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render(), end="")
