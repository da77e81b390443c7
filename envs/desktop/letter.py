"""A text to be typed into an editor, and saved."""

from __future__ import annotations

from bunshin_gym.desktop.tasks import launch
from bunshin_gym.envs import _judge
from bunshin_gym.envs.desktop._actions import WAIT, do, keys
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

PATH = "/work/letter.txt"
TEXT = "Dear Ms Němcová,\nthe café in Łódź opens at 9 o’clock.\nYours, J."

INSTRUCTION = f"""\
The editor on the screen is to save into {PATH}. Write exactly these lines into it, accents included, and save:

{TEXT}

Submit when the file is saved."""


def verify(ws: Workspace) -> float:
    """1.0 where the file holds the text; a line end at the end is as good as none."""
    saved = _judge.read_text(ws, PATH)
    return float(saved is not None and saved.removesuffix("\n") == TEXT)


WRONG = {
    "not saved": (do("type", text=TEXT), WAIT),
    "without the accents": (do("type", text=TEXT.encode("ascii", "ignore").decode()), keys("CTRL", "S"), WAIT),
    "in another file": (do("write_file", path="/work/letter", content=TEXT),),
}

LETTER = Task(
    name="desktop_letter",
    instruction=INSTRUCTION,
    setup=(launch(f"mousepad {PATH}", "mousepad"),),
    verifier=verify,
    step_limit=16,
    solution=(do("type", text=TEXT), keys("CTRL", "S"), WAIT),
    wrong=WRONG["not saved"],
)
