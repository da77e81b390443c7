"""A file to be renamed, seen in a file manager; which one is told by what is in it."""

from __future__ import annotations

import json

from bunshin_gym.desktop.tasks import launch
from bunshin_gym.envs import _judge
from bunshin_gym.envs.desktop._actions import WAIT, do, keys
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

FOLDER = "/work/notes"
NOTES = {
    "note-1.txt": "Three baskets of plums, two of pears.\n",
    "note-2.txt": "The harvest feast is on the last Saturday of September.\n",
    "note-3.txt": "Ask Jan about the cider press.\n",
}
NAME = "harvest-feast.txt"

INSTRUCTION = f"""\
The window shows the folder {FOLDER}. Rename the note that tells when the harvest feast is to {NAME}, and leave the
others as they are. Submit when you are done."""

LIST = """
import json, os, sys
folder = sys.argv[1]
print(json.dumps({name: open(os.path.join(folder, name)).read() for name in sorted(os.listdir(folder))}))
"""


def verify(ws: Workspace) -> float:
    """1.0 where the folder holds just the three notes, the right one under its new name."""
    wanted = {NAME if name == "note-2.txt" else name: text for name, text in NOTES.items()}
    return float(_judge.python(ws, LIST, FOLDER) == json.loads(json.dumps(wanted)))


def rename(position: int, name: str) -> tuple[str, ...]:
    """Rename the file at that place of the folder, from 0."""
    # The file manager notes a selection some time after it shows it: what F2 renames is what the status bar names.
    steps = (keys("HOME"), *[keys("RIGHT")] * position, WAIT, keys("F2"), keys("CTRL", "A"))
    return (*steps, do("type", text=f"{name}\n"), WAIT)


WRONG = {
    "the first one": rename(0, NAME),
    "another name": rename(1, "harvest.txt"),
    "a copy": (do("shell", command=f"cp {FOLDER}/note-2.txt {FOLDER}/{NAME}"),),
    "not confirmed": rename(1, NAME)[:-2],
}

FILES = Task(
    name="desktop_files",
    instruction=INSTRUCTION,
    files={f"{FOLDER}/{name}": text.encode() for name, text in NOTES.items()},
    setup=(launch(f"pcmanfm {FOLDER}", "pcmanfm"),),
    verifier=verify,
    step_limit=24,
    solution=rename(1, NAME),
    wrong=WRONG["the first one"],
)
