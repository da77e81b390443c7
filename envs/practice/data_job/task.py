"""A report over a million rows; the judge computes it by itself from the making of the table."""

from __future__ import annotations

import json

from bunshin_gym.envs import _judge
from bunshin_gym.envs.practice import _live
from bunshin_gym.habits import Attempt, Habits
from bunshin_gym.image import Image
from bunshin_gym.task import Task
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Workspace

from . import trips

FOLDER = "/work/trips"
REPORT = f"{FOLDER}/report.json"

INSTRUCTION = f"""\
{FOLDER} holds a year of taxi trips (README.md there says what the columns mean). Write {REPORT}: a JSON object with an
entry for each borough that has trips, each an object with the keys trips (how many), fares (their sum, in cents),
mean_metres (the mean distance in metres, to one decimal) and busiest_hour (the hour of the day, 0 to 23, in which most
trips began). Submit when you are done."""


def image() -> Image:
    """The image with the tables in it."""
    return _live.image(f"mkdir -p {FOLDER} && cd {FOLDER} && python3 - <<'EOF'\n{trips.MAKE}EOF\n")


def verify(ws: Workspace) -> float:
    """1.0 where the report is right (means to 0.2 metres), else 0.0."""
    text = _judge.read_text(ws, REPORT)
    try:
        report = json.loads(text or "")
    except ValueError:
        return 0.0
    right = trips.answer()
    if not isinstance(report, dict) or report.keys() != right.keys():
        return 0.0
    return float(all(_alike(report[name], entry) for name, entry in right.items()))


def _alike(got: object, right: dict[str, float]) -> bool:
    if not isinstance(got, dict) or got.keys() != right.keys():
        return False
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in got.values()):
        return False
    near = abs(got["mean_metres"] - right["mean_metres"]) <= 0.2
    return near and all(got[key] == right[key] for key in right if key != "mean_metres")


def script(*, twice: bool = True, done: bool = True, units: bool = True) -> str:
    """A command that writes the job; each False leaves one cleaning step out."""
    clean = "".join(
        line
        for line, kept in (
            ("trips = trips.drop_duplicates('trip')\n", twice),
            ("trips = trips[trips.status == 'done']\n", done),
            # Row by row, as such jobs are usually written.
            ("trips['distance'] = trips.apply(metres, axis=1)\n", units),
        )
        if kept
    )
    return f"""\
cat > job.py <<'EOF'
import json
import pandas as pd

def metres(row):
    return row.distance * 1609.344 if row.unit == "mi" else row.distance

trips = pd.read_csv("trips.csv")
zones = pd.read_csv("zones.csv")
{clean}trips = trips.merge(zones, on="zone")
trips["hour"] = trips.minute // 60 % 24
report = {{}}
for name, group in trips.groupby("borough"):
    report[name] = {{
        "trips": len(group),
        "fares": int(group.fare.sum()),
        "mean_metres": round(float(group.distance.mean()), 1),
        "busiest_hour": int(group.hour.value_counts().sort_index().idxmax()),
    }}
json.dump(report, open("report.json", "w"), indent=1, sort_keys=True)
EOF"""


def python(code: str) -> ToolCall:
    return ToolCall("python", {"code": code})


RUN = "python3 job.py && cat report.json"
LOOK = (f"cd {FOLDER} && ls -s", "cat README.md", "head -4 trips.csv zones.csv")
LOAD = python(f"import pandas as pd\ntrips = pd.read_csv('{FOLDER}/trips.csv')\ntrips.describe()")
CHECK = """\
python3 - <<'EOF'
import json
import pandas as pd
trips = pd.read_csv("trips.csv", usecols=["trip", "status", "fare"])
valid = trips[trips.status == "done"].drop_duplicates("trip")
report = json.load(open("report.json"))
print("trips", len(valid), sum(entry["trips"] for entry in report.values()))
print("fares", valid.fare.sum(), sum(entry["fares"] for entry in report.values()))
EOF"""

WRONG = {
    "rows are counted twice": (*LOOK, script(twice=False), RUN),
    "cancelled trips are trips": (*LOOK, script(done=False), RUN),
    "miles are metres": (*LOOK, script(units=False), RUN),
    "everything is true": (*LOOK, f"echo '{{\"North\": true}}' > {REPORT}"),
}

HABITS = Habits(
    opening=(
        (LOOK[0], f"cd {FOLDER} && ls", f"cd {FOLDER} && du -k *"),
        (LOOK[1], "cat README.md && wc -l trips.csv", "sed -n 3,9p README.md"),
        (LOOK[2], "head -2 trips.csv", "tail -n 3 trips.csv && cat zones.csv | head -5"),
        (LOAD, python(f"import pandas as pd\ntrips = pd.read_csv('{FOLDER}/trips.csv')\nprint(trips.dtypes)")),
        (
            python("print(trips.groupby(['unit', 'status']).agg(['count', 'mean', 'max']).to_string())"),
            python("trips.isna().sum()"),
            python("print(trips.unit.value_counts())\nprint(trips.status.value_counts())"),
        ),
    ),
    reading=(
        "cut -d, -f5 trips.csv | sort | uniq -c",
        "cut -d, -f7 trips.csv | sort | uniq -c",
        "cut -d, -f1 trips.csv | sort | uniq -d | wc -l",
        python("print(trips[trips.trip.duplicated(keep=False)].head(6).to_string())"),
        python("print(trips.sort_values('distance').head(5).to_string())"),
    ),
    attempts=(
        Attempt((script(), RUN), right=True, weight=4),
        Attempt((script(twice=False), RUN), right=False, weight=2),
        Attempt((script(units=False), RUN), right=False, weight=2),
        Attempt((script(done=False, units=False), RUN), right=False, weight=2),
    ),
    check=(CHECK, f"{CHECK}\ncat report.json"),
    again=(
        "cat report.json",
        "grep -n -m3 ',mi,' trips.csv",
        "cut -d, -f1 trips.csv | uniq -d | head -3",
        python("print(len(trips), trips.trip.nunique(), (trips.status == 'done').sum())"),
    ),
    closing=("cat report.json", f"{CHECK}"),
    patience=3,
)

TASK = Task(
    name="data_job",
    instruction=INSTRUCTION,
    image=image,
    files={f"{FOLDER}/README.md": trips.README.encode(), **_live.files()},
    setup=tuple(_live.start(FOLDER)),
    verifier=verify,
    step_limit=40,
    call_timeout=300.0,
    spec={"env": _live.environment()},
    solution=(*LOOK, script(), RUN),
    wrong=WRONG["rows are counted twice"],
    habits=HABITS,
)
