"""Reports as files: a page that needs nothing else, or the bare JSON.

The page holds the data as JSON in which nothing can end the element it is in, and a policy that lets it run its own
script and style and fetch nothing at all. Whatever a call has written reaches the document as text only.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

from bunshin_gym.branch import cut
from bunshin_gym.errors import TaskError
from bunshin_gym.picture import printable
from bunshin_gym.report.collect import FORMAT, Report

__all__ = ["load", "render", "write"]

_SCRIPTS = ("base.js", "model.js", "charts.js", "outline.js", "detail.js", "map.js", "timeline.js", "main.js")
_DATA = '<script id="data" type="application/json">'
_OUTPUT = 12_000_000  # characters that the results of all calls may take in a page


def write(report: Report, path: Path) -> None:
    """The report as a file: JSON where its name ends so, else a page. Raises TaskError."""
    plain = report.as_dict()
    _shorten(plain)
    text = json.dumps(plain) if path.suffix == ".json" else render(plain)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TaskError(f"cannot write {path}: {error.strerror}") from error


def render(plain: dict[str, Any]) -> str:
    """The page of a report's `as_dict`."""
    folder = resources.files("bunshin_gym.report") / "page"
    script = "\n".join(["(() => {", '"use strict";', *((folder / name).read_text() for name in _SCRIPTS), "})();"])
    style = (folder / "report.css").read_text()
    data = json.dumps(plain, separators=(",", ":"))
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    parts = {
        "title": html.escape(printable(plain["title"])),
        "policy": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:",
        "style": style,
        "data": _DATA + data,
        "script": script,
    }
    page = (folder / "report.html").read_text()
    before, *rest = page.split("{{")
    return before + "".join(parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest))


def load(path: Path) -> dict[str, Any]:
    """What `write` has written, as plain data. Raises TaskError for what cannot be read or is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"cannot read {path}: it is neither a report nor JSON") from error
    _, found, rest = text.partition(_DATA)
    try:
        plain = json.loads(rest.partition("</script>")[0] if found else text)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"cannot read {path}: it is neither a report nor JSON") from error
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise TaskError(f"cannot read {path}: it is no report of this version ({FORMAT})")
    return plain


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _shorten(plain: dict[str, Any]) -> None:
    """Cut what calls gave to what a page can hold."""
    every = [one for run in plain["runs"] for task in run["tasks"] for one in task["branches"] if one.get("output")]
    if sum(len(one["output"]) for one in every) > _OUTPUT:
        for one in every:
            one["output"] = cut(one["output"], max(200, _OUTPUT // len(every)))
