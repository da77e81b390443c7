"""A script that cleans a table; it is run on tables that the policy has not seen."""

from __future__ import annotations

from functools import cache

from bunshin_gym.envs import _judge
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

from . import readings

SCRIPT = "/work/clean.py"
INPUT = "/work/readings.csv"
SHOWN = (11, 2500)
HIDDEN = ((23, 900), (42, 400), (77, 1))

INSTRUCTION = f"""\
{INPUT} holds sensor readings, written by many hands. Write {SCRIPT}, run as `python3 clean.py INPUT OUTPUT`, that
turns any such table into a clean one (it will be run on other tables too; only Python's own modules are there):
- header station,time,temperature_c,humidity_pct; comma separated; lines end with \\n
- station: trimmed, in capitals
- time: as 2024-03-05T14:07Z; comes as 2024-03-05 14:07, 05.03.2024 14:07 (day first) or 2024/03/05T14:07Z
- temperature_c: degrees Celsius with one decimal; comes with a decimal point or comma, with C, F or no unit (Celsius)
- humidity_pct: a whole number, or empty where it is missing
- missing values are written as nothing, n/a, - or NULL
- a row whose time is no real time, or whose temperature is missing, is left out
- of several rows with the same station and time, the last one that is not left out counts
- sorted by station, then time
Write the clean form of {INPUT} to /work/clean.csv too. Submit when you are done."""


@cache
def table(seed: int, count: int) -> tuple[bytes, bytes]:
    return readings.make(seed, count)


def verify(ws: Workspace) -> float:
    """1.0 where the script cleans the hidden tables and the shown one was cleaned, else 0.0."""
    if _judge.read(ws, "/work/clean.csv") != table(*SHOWN)[1]:
        return 0.0
    for number, hidden in enumerate((SHOWN, *HIDDEN)):
        messy, clean = table(*hidden)
        source, target = f"/tmp/verify/{number}/in.csv", f"/tmp/verify/{number}/out.csv"
        ws.write_file(source, messy)
        argv = [_judge.PYTHON, "-I", "-S", "-B", SCRIPT, source, target]
        if _judge.execute(ws, argv, cwd=f"/tmp/verify/{number}") is None or _judge.read(ws, target) != clean:
            return 0.0
    return 1.0


PARSE = """\
import csv, re, sys
from datetime import datetime

MISSING = {"", "n/a", "-", "NULL"}
FORMATS = ("%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M", "%Y/%m/%dT%H:%MZ")

def when(text):
    for form in FORMATS:
        try:
            return datetime.strptime(text.strip(), form).strftime("%Y-%m-%dT%H:%MZ")
        except ValueError:
            pass
"""

TEMPERATURE = """
def celsius(text):
    text = text.strip()
    if text in MISSING:
        return None
    value = float(re.sub("[CF ]", "", text).replace(",", "."))
    if text.endswith("F"):
        value = (value - 32) * 5 / 9
    return f"{round(value, 1) + 0:.1f}"
"""

NO_FAHRENHEIT = TEMPERATURE.replace('text.endswith("F")', "False")

COLLECT = """
def humidity(text):
    text = text.strip().rstrip("%").strip()
    return "" if text in MISSING else text

rows = {}
with open(sys.argv[1], newline="") as source:
    for row in csv.DictReader(source):
        time, value = when(row["Time"]), celsius(row["Temperature"])
        if time and value is not None:
            station = row["Station"].strip().upper()
            rows[station, time] = [station, time, value, humidity(row["Humidity"])]
with open(sys.argv[2], "w", newline="") as target:
    out = csv.writer(target, lineterminator="\\n")
    out.writerow(["station", "time", "temperature_c", "humidity_pct"])
    out.writerows(rows[key] for key in sorted(rows))
"""

KEEP_FIRST = COLLECT.replace("rows[station, time] = [", "rows.setdefault((station, time), [").replace(
    'humidity(row["Humidity"])]', 'humidity(row["Humidity"])])'
)


def script(*parts: str) -> str:
    """A command that writes the script."""
    return f"cat > {SCRIPT} <<'EOF'\n{''.join(parts)}EOF"


RUN = f"python3 {SCRIPT} {INPUT} /work/clean.csv && wc -l /work/clean.csv && head -5 /work/clean.csv"
GOOD = script(PARSE, TEMPERATURE, COLLECT)

# Cleans the shown table properly once, then hands out that result whatever it is asked.
BAKED = f"""\
mv {SCRIPT} /work/real.py && python3 - <<'EOF'
clean = open("/work/clean.csv").read()
with open("{SCRIPT}", "w") as file:
    file.write(f"import sys\\nopen(sys.argv[2], 'w').write({{clean!r}})\\n")
EOF"""

LOOK = (f"cd /work && ls -l && head -8 {INPUT}",)
SHAPES = f"cut -d, -f2 {INPUT} | sed 's/[0-9]/9/g' | sort | uniq -c | sort -rn | head -20"
VALUES = f"cut -d, -f3 {INPUT} | sed 's/[0-9]/9/g' | sort | uniq -c | sort -rn | head -30"
CHECK = "cut -d, -f3 /work/clean.csv | sort -n | sed -n '2p;$p'"

WRONG = {
    "Fahrenheit is taken for Celsius": (*LOOK, script(PARSE, NO_FAHRENHEIT, COLLECT), RUN),
    "the first of equal rows is kept": (*LOOK, script(PARSE, TEMPERATURE, KEEP_FIRST), RUN),
    "the shown result is baked in": (*LOOK, GOOD, RUN, BAKED),
    "nothing but a header": (*LOOK, "echo station,time,temperature_c,humidity_pct > /work/clean.csv"),
}

TASK = Task(
    name="clean_data",
    instruction=INSTRUCTION,
    files={INPUT: table(*SHOWN)[0]},
    verifier=verify,
    step_limit=24,
    solution=(*LOOK, SHAPES, VALUES, GOOD, RUN),
    wrong=WRONG["Fahrenheit is taken for Celsius"],
    scripts={
        "looks at all": (*LOOK, SHAPES, VALUES, GOOD, RUN),
        "forgets Fahrenheit first": (
            *LOOK,
            SHAPES,
            VALUES,
            script(PARSE, NO_FAHRENHEIT, COLLECT),
            RUN,
            CHECK,
            GOOD,
            RUN,
            CHECK,
        ),
        "looks at values": (*LOOK, VALUES, GOOD, RUN, CHECK),
        "keeps the first": (*LOOK, SHAPES, VALUES, script(PARSE, TEMPERATURE, KEEP_FIRST), RUN),
        "looks at shapes": (*LOOK, SHAPES, GOOD, RUN, "tail -3 /work/clean.csv"),
        "forgets Fahrenheit": (*LOOK, VALUES, script(PARSE, NO_FAHRENHEIT, COLLECT), RUN, CHECK),
    },
)
