"""A hunt through rotated logs; the answer is one record, compared outside the workspace."""

from __future__ import annotations

import json

from bunshin_gym.envs import _judge
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

from . import logs

FOLDER = "/work/logs"
REPORT = "/work/report.json"

INSTRUCTION = f"""\
{FOLDER} holds two days of logs: web1/ and web2/ (access logs, rotated and compressed; mind their time zones) and
auth.log (sign-ins, UTC). The field after the dash in an access log is the session, or - for none. People share proxies,
so a session is often seen from several addresses; but one session was stolen and used from an address that never signed
in at all. Find it and write {REPORT}: a JSON object with the keys session, address (the thief's), first and last (the
thief's first and last request with it, UTC, like 2024-03-05T14:07:33Z), requests (how many the thief made) and bytes
(how many were sent to the thief), the last two as numbers. Submit when you are done."""


def verify(ws: Workspace) -> float:
    """1.0 where the report is exactly the right record, else 0.0."""
    text = _judge.read_text(ws, REPORT)
    try:
        report = json.loads(text or "")
    except ValueError:
        return 0.0
    return float(report == logs.make().answer)


HUNT = """\
import glob, gzip, json, re
from datetime import datetime, timezone

known = set(re.findall(r"address=(\\S+)", open("{folder}/auth.log").read()))
line = re.compile(r'(\\S+) - (\\S+) \\[([^]]+)\\] "[^"]*" \\d+ (\\d+)')
found = {{}}
for path in glob.glob("{folder}/web*/{pattern}"):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as file:
        for text in file:
            address, session, stamp, size = line.match(text).groups()
            if session != "-" and address not in known:
                when = datetime.strptime(stamp, "%d/%b/%Y:%H:%M:%S %z"){zone}
                found.setdefault((session, address), []).append((when, int(size)))
for (session, address), uses in found.items():
    form = "%Y-%m-%dT%H:%M:%SZ"
    report = {{
        "session": session, "address": address,
        "first": min(uses)[0].strftime(form), "last": max(uses)[0].strftime(form),
        "requests": len(uses), "bytes": sum(size for _, size in uses),
    }}
    json.dump(report, open("{report}", "w"))
    print(report)
"""


def hunt(pattern: str = "access.log*", zone: str = ".astimezone(timezone.utc)") -> str:
    """A command that writes the report from the logs that match `pattern`."""
    code = HUNT.format(folder=FOLDER, pattern=pattern, zone=zone, report=REPORT)
    return f"cat > /work/hunt.py <<'EOF'\n{code}EOF\npython3 /work/hunt.py"


LOOK = (
    f"cd {FOLDER} && ls -lR",
    "head -3 auth.log web1/access.log web2/access.log",
    "cat web*/access.log web*/access.log.1 > /tmp/all && zcat web*/*.gz >> /tmp/all && wc -l /tmp/all",
)
TOP = "cut -d' ' -f1 /tmp/all | sort | uniq -c | sort -rn | head"
STRANGERS = """\
sed 's/.*address=\\([^ ]*\\).*/\\1/' auth.log | sort -u > /tmp/known
cut -d' ' -f1,3 /tmp/all | grep -v ' -$' | sort | uniq -c | sort -rn | grep -v -F -f /tmp/known"""
SPREAD = "cut -d' ' -f1,3 /tmp/all | grep -v ' -$' | sort -u | cut -d' ' -f2 | sort | uniq -c | sort -rn | head -5"

# The busiest address is a crawler; calling it the thief needs no hunt.
BUSIEST = f"""\
python3 - <<'EOF'
import json
json.dump({{"session": "-", "address": "{logs.CRAWLER}", "first": "2024-03-04T00:00:00Z",
           "last": "2024-03-05T23:59:59Z", "requests": 1500, "bytes": 0}}, open("{REPORT}", "w"))
EOF"""

# Every pair of session and address, in the hope that containing the answer is enough.
EVERYTHING = f"""\
python3 - <<'EOF'
import json
pairs = sorted({{(f[0], f[2]) for f in map(str.split, open("/tmp/all"))}})
json.dump({{"session": [s for _, s in pairs], "address": [a for a, _ in pairs], "first": "", "last": "",
           "requests": True, "bytes": True}}, open("{REPORT}", "w"))
EOF"""

WRONG = {
    "the compressed logs are left out": (*LOOK, hunt(pattern="access.log*[!z]")),
    "the time zone is ignored": (*LOOK, hunt(zone="")),
    "the busiest address is named": (*LOOK, TOP, BUSIEST),
    "every candidate is named": (*LOOK, EVERYTHING),
}

TASK = Task(
    name="log_hunt",
    instruction=INSTRUCTION,
    files={f"{FOLDER}/{path}": content for path, content in logs.make().files.items()},
    verifier=verify,
    step_limit=24,
    solution=(*LOOK, STRANGERS, hunt()),
    wrong=WRONG["the compressed logs are left out"],
    scripts={
        "strangers": (*LOOK, STRANGERS, hunt()),
        "counts, spreads, strangers": (*LOOK, TOP, SPREAD, STRANGERS, hunt()),
        "counts first": (*LOOK, TOP, STRANGERS, hunt(), f"cat {REPORT}"),
        "names the busiest": (*LOOK, TOP, BUSIEST),
        "mends the zone": (*LOOK, STRANGERS, hunt(zone=""), "grep -h 198.51.100.23 web2/access.log | head -3", hunt()),
        "forgets the archives": (*LOOK, STRANGERS, hunt(pattern="access.log*[!z]"), f"cat {REPORT}"),
    },
)
