"""The shell itself, with jobs, traps, coprocesses and here-documents, and scripting languages."""

from __future__ import annotations

import pytest
from programs.scene import Branch, Scene, together

pytestmark = [pytest.mark.engine("native"), pytest.mark.timeout(120)]


def test_bash(scene: Scene) -> None:
    """The session's own shell, and a script that waits in `read`, `wait` and a pipeline."""
    source = scene.source()
    source.put(
        "/work/script",
        """
trap 'echo trapped $((n += 1)) >>/work/traps' USR1
trap 'echo "bye $word $n" >>/work/traps' EXIT
n=0
( for i in $(seq 1 40); do sleep 0.03; echo $i; done | while read i; do echo "line $i"; done >/work/piped ) &
mkfifo /work/word
while ! read -r word </work/word; do :; done
wait %1 || while kill -0 $! 2>/dev/null; do wait $!; done
cat <<EOF >/work/here
word $word, $(wc -l </work/piped) lines
EOF
exit 7
""",
    )
    source.start("bash -c 'bash /work/script; echo $? >/work/status'")
    source.sh("""
declare -A table=([before]=1); numbers=(1 2 3); shopt -s extglob; set -o pipefail; umask 027
double() { echo $(( $1 * 2 )); }
coproc CALC { while read -r line; do echo "co: $((line))"; done; }
exec 8< <(for i in $(seq 1 50); do echo "sub $i"; sleep 0.02; done)
read -r first <&8; [ "$first" = "sub 1" ]
exec 9<<EOF
$(seq 1 5000)
EOF
for i in $(seq 1 100); do read -r last <&9; done; [ "$last" = 100 ]
(sleep 0.8; echo job done >/work/job; exit 5) &
job=$!
sleep 300 & kill -STOP $!; stopped=$!
pushd /tmp >/dev/null
""")
    source.until("cat /work/piped", "line 3")
    source.sh("kill -USR1 $(pgrep -of '^bash /work/script')")
    source.until("cat /work/traps", "trapped 1")
    branches = scene.fork(
        source, "bash --version | head -1 | sed 's/(.*//; s/GNU //'",
        "jobs running and stopped, a coprocess, a substitution and a here-document half read; a script with traps",
    )  # fmt: skip

    def go_on(branch: Branch) -> None:
        n = branch.number
        assert (
            branch.sh(
                f"table[own]={n}; "
                f'echo "${{table[before]}} ${{table[own]}} ${{#table[@]}} ${{numbers[2]}} $(double {n}) $PWD"'
            )
            == f"1 {n} 2 3 {2 * n} /tmp\n"
        )
        assert (
            branch.sh(f"echo '{n} * 100' >&${{CALC[1]}}; read -r answer <&${{CALC[0]}}; echo $answer")
            == f"co: {100 * n}\n"
        )
        assert branch.sh("cat <&8").splitlines() == [f"sub {i}" for i in range(2, 51)]
        assert (
            branch.sh(f"for i in $(seq 0 {n}); do read -r last <&9; done; echo $last; cat <&9 | wc -l")
            == f"{101 + n}\n{4899 - n}\n"
        )
        assert branch.sh("wait $job; echo $?") == "5\n"
        assert branch.get("/work/job") == "job done\n"
        assert (
            branch.sh(
                "grep -c stopped /proc/$stopped/status; kill -KILL $stopped; wait $stopped 2>/dev/null; echo $?; umask"
            )
            == "1\n137\n0027\n"
        )
        branch.sh("kill -USR1 $(pgrep -of '^bash /work/script')")
        branch.until("cat /work/traps", "trapped 2")
        branch.sh(f"echo own{n} >/work/word")
        assert branch.until("cat /work/status") == "7\n"
        assert branch.get("/work/here") == f"word own{n}, 40 lines\n"
        assert branch.get("/work/traps") == f"trapped 1\ntrapped 2\nbye own{n} 2\n"
        assert branch.get("/work/piped").splitlines() == [f"line {i}" for i in range(1, 41)]

    together(branches, go_on)


PERL = r"""
use strict; use warnings; use IO::Handle; use IO::Select; use Socket; use Time::HiRes qw(sleep alarm);
socketpair(my $mine, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;
my ($alarms, $usr) = (0, 0);
$SIG{ALRM} = sub { $alarms++; alarm(0.02) if $alarms < 50 };
$SIG{USR1} = sub { $usr++ };
alarm(0.02);
my $child = fork();
if (!$child) {
    close $mine;
    while (my $line = <$theirs>) { chomp $line; $theirs->syswrite(scalar(reverse $line) . "\n") }
    exit 9;
}
close $theirs;
open(my $pipe, "-|", "for i in 1 2 3 4 5 6 7 8; do echo \$i; sleep 0.1; done") or die;
my $select = IO::Select->new($pipe); my ($sum, $rest) = (0, "");
open(my $state, ">", "/work/state") or die; $state->autoflush(1);
while ($select->count) {
    for my $ready ($select->can_read(5)) {
        my $got = sysread($ready, my $part, 4096);
        next if !defined $got;
        if (!$got) { $select->remove($ready); next }
        $rest .= $part; while ($rest =~ s/^(\d+)\n//) { $sum += $1; print $state "at $1\n" }
    }
}
close $pipe; sleep(0.02) while $alarms < 50;
my $word; { local $/; until (-s "/work/word") { sleep(0.02) } open(my $f, "<", "/work/word") or die; $word = <$f> }
syswrite($mine, "$word\n"); my $answer = <$mine>; chomp $answer;
close $mine; waitpid($child, 0);
print "sum $sum alarms $alarms usr $usr answer $answer child ", $? >> 8, "\n";
"""

RUBY = r"""
require "socket"; require "timeout"; require "json"
queue, done = SizedQueue.new(3), Queue.new
server = TCPServer.new("127.0.0.1", 0); port = server.addr[1]
Thread.new { loop { Thread.new(server.accept) { |s| while (line = s.gets); s.puts line.upcase; end; s.close } } }
consumer = Thread.new { sum = 0; while (n = queue.pop) != :end; sum += n; end; sum }
producer = Thread.new { 200.times { |i| queue << i; sleep 0.004 }; queue << :end }
fiber = Fiber.new { n = 0; loop { n += Fiber.yield(n) } }; fiber.resume
usr = 0; trap("USR1") { usr += 1 }
client = TCPSocket.new("127.0.0.1", port)
pipe = IO.popen("while read line; do echo \"child $line\"; done", "r+")
fiber.resume(5); File.write("/work/state", "at 2\n")
sleep 0.02 until File.size?("/work/word")
word = File.read("/work/word")
client.puts word; answer = client.gets.chomp
pipe.puts word; pipe.close_write; child = pipe.read.chomp; pipe.close
late = begin Timeout.timeout(0.2) { Queue.new.pop } rescue "timed out" end
GC.start
sums = "sum #{consumer.value} fiber #{fiber.resume(7)} usr #{usr}"
puts "#{sums} answer #{answer} child #{child} #{$?.exitstatus} #{late}"
"""


@pytest.mark.parametrize(
    ("language", "text", "version", "expected"),
    [
        pytest.param("perl", PERL, "perl -e 'print qq(perl ), substr($^V, 1)'",
                     "sum 36 alarms 50 usr 1 answer {reverse} child 9",
                     marks=pytest.mark.needs("perl"), id="perl"),
        pytest.param("ruby", RUBY, "ruby -e 'puts %(ruby ) + RUBY_VERSION'",
                     "sum 19900 fiber 12 usr 1 answer {upper} child child {word} 0 timed out",
                     marks=pytest.mark.needs("ruby"), id="ruby"),
    ],
)  # fmt: skip
def test_a_scripting_language(scene: Scene, language: str, text: str, version: str, expected: str) -> None:
    source = scene.source()
    source.put("/work/program", text)
    source.start(f"{language} /work/program")
    source.until("cat /work/state", "at 2")
    doing = {
        "perl": "alarms, select on a pipe, a child on a socket pair",
        "ruby": "threads, queues, fibers, a server with its client, a child",
    }
    branches = scene.fork(source, version, doing[language])

    def go_on(branch: Branch) -> None:
        word = f"branch-{branch.number}-word"
        branch.sh(
            f"pkill -USR1 -o -f '^{language} /work/program'; printf %s {word} >/work/new; mv /work/new /work/word"
        )
        said = expected.format(word=word, upper=word.upper(), reverse=word[::-1])
        branch.until(f"cat /work/{language}.log", f"^{said}\n$")
        branch.until(f"! pgrep -f '^{language} /work/program' >/dev/null")

    together(branches, go_on)
