"""A browser to look at pages with: Chromium without a window, spoken to over a pipe (the Chrome DevTools Protocol)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-breakpad",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-pipe",
    "--window-size=1400,1000",
)
PATIENCE = 90.0


class Browser:
    """A browser with one page. `complaints`: errors and warnings of its console; `fetched`: what it asked for."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.fetched: list[str] = []
        self._number = 0
        self._session = ""
        self._read = b""

    def __enter__(self) -> Self:
        self._profile = tempfile.mkdtemp(prefix="report-browser-")
        its_in, self._to = os.pipe()
        self._from, its_out = os.pipe()
        # It wants them as descriptors 3 and 4, so they have to be out of the way of those.
        theirs_in, theirs_out = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (its_in, its_out))
        os.close(its_in)
        os.close(its_out)
        program = shutil.which("chromium")
        assert program is not None
        words = [program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._log = open(f"{self._profile}/log", "wb")
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-', "bash", *words],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env=os.environ | {"HOME": self._profile, "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            (target,) = (t for t in self("Target.getTargets")["targetInfos"] if t["type"] == "page")
            attached = self("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._log.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        """What a method of the protocol answers. Raises AssertionError where it is an error, or none comes."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._number:
                assert "error" not in got, f"{method}: {got['error']}"
                return dict(got["result"])

    def open(self, path: Path) -> None:
        """Show a file, and wait until it is loaded."""
        self("Page.navigate", url=path.as_uri())
        self.until("document.readyState === 'complete' && location.protocol === 'file:'")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; promises are waited for."""
        got = self("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def until(self, expression: str) -> Any:
        """The value of the expression once it is true."""
        ends = time.monotonic() + PATIENCE
        while not (value := self.ask(expression)):
            assert time.monotonic() < ends, f"never came true: {expression}"
            # The page draws at most once a frame: let it have one.
            self.ask("new Promise(done => setTimeout(done, 15))")
        return value

    def press(self, key: str, *, shift: bool = False) -> None:
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        codes = {"Enter": 13, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
        code = codes.get(key, ord(key[0]))
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        self("Input.insertText", text=text)

    def click(self, x: float, y: float) -> None:
        """Click at a place in the window, in pixels."""
        for kind in ("mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Where an element is in the window once it is scrolled into it: left, top, width, height, in pixels."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{found}.scrollIntoView({{block: 'nearest'}})")
        left, top, width, height = self.ask(f"(b => [b.x, b.y, b.width, b.height])({found}.getBoundingClientRect())")
        return left, top, width, height

    def click_on(self, selector: str) -> None:
        """Click in the middle of an element."""
        left, top, width, height = self.box(selector)
        self.click(left + width / 2, top + height / 2)

    def text(self, selector: str) -> str:
        return str(self.ask(f"document.querySelector({json.dumps(selector)}).textContent"))

    def count(self, selector: str) -> int:
        return int(self.ask(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def colourful(self, selector: str) -> float:
        """The share of a canvas that is painted."""
        return float(
            self.ask(
                f"(c => {{ const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"
                f"for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return 4 * n / d.length }})"
                f"(document.querySelector({json.dumps(selector)}))"
            )
        )

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))

    def _next(self) -> dict[str, Any]:
        ends = time.monotonic() + PATIENCE
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._from], [], [], max(0.0, ends - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._from, 1 << 16)
            assert part, f"the browser is gone: {Path(self._profile, 'log').read_text(errors='replace')[-2000:]}"
            self._read += part
        text, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(params["entry"]))
        elif method == "Network.requestWillBeSent":
            self.fetched.append(params["request"]["url"])
