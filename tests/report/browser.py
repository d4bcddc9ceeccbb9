"""Chromium without a window, driven over two pipes by its DevTools protocol; nothing to install.

https://chromedevtools.github.io/devtools-protocol/: messages are JSON, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --disable-dev-shm-usage "
    "--hide-scrollbars --force-device-scale-factor=1 --remote-debugging-pipe"
)
HAND_OVER = """
import os, sys
for number, given in ((103, sys.argv[1]), (104, sys.argv[2]), (3, 103), (4, 104)):
    os.dup2(int(given), number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""What becomes the browser: it wants its two pipes as files 3 and 4."""

KEYS = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Enter": 13,
    "Escape": 27,
}


def chromium() -> str | None:
    """Where the browser is, or None."""
    return shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """A page in a browser: `open` it, `press` keys, `click`, and ask it with `evaluate`."""

    def __init__(self, width: int = 1400, height: int = 900, scheme: str = "light") -> None:
        self.complaints: list[str] = []
        self._folder = tempfile.mkdtemp()
        mine, theirs = os.pipe(), os.pipe()

        command = [str(chromium()), *FLAGS.split(), f"--window-size={width},{height}"]
        ends = mine[0], theirs[1]
        self._process = subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, *map(str, ends), *command,
             f"--user-data-dir={self._folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=ends, start_new_session=True,
        )  # fmt: skip
        os.close(mine[0]), os.close(theirs[1])
        self._out, self._in = os.fdopen(mine[1], "wb"), os.fdopen(theirs[0], "rb")
        self._rest = b""
        self._count = 0
        self._session = ""
        self._begin(width, height, scheme)

    def _begin(self, width: int, height: int, scheme: str) -> None:
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(EOFError, OSError):
            self.send("Browser.close")
        self._out.close(), self._in.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Do one thing; its result. What the page complains of meanwhile is kept."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while (answer := self._read()).get("id") != self._count:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in.fileno(), 1 << 20)
            if not part:
                raise EOFError("the browser is gone")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(event["params"]["exceptionDetails"])[:2000])
        if event.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(event["params"]["args"])[:2000])
        if event.get("method") == "Log.entryAdded":
            self.complaints.append(event["params"]["entry"]["text"])

    def open(self, path: Path, hash: str = "") -> float:
        """Open a file; seconds until it was drawn."""
        start = time.perf_counter()
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=path.as_uri() + hash)
        self.wait("document.readyState === 'complete'")
        self.frame()
        return time.perf_counter() - start

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true."""
        end = time.perf_counter() + seconds
        while not self.evaluate(condition):
            if time.perf_counter() > end:
                raise TimeoutError(f"{condition}; {self.complaints}")
            time.sleep(0.02)

    def frame(self) -> None:
        """Wait until what was asked for is drawn."""
        twice = "new Promise((d) => requestAnimationFrame(() => requestAnimationFrame(() => d(1))))"
        self.evaluate(twice)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page; promises are waited for."""
        result = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        """The text of an element."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def press(self, key: str) -> None:
        """Press a key as a hand does."""
        code = KEYS.get(key, ord(key[0].upper()))
        typed = {"text": key} if len(key) == 1 else {}
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", **common, **typed)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)
        self.frame()

    def type(self, text: str) -> None:
        """Type a text."""
        self.send("Input.insertText", text=text)
        self.frame()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move or press the mouse at a point of the page."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """Click at a point of the page."""
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", buttons=1, clickCount=1)
        self.frame()

    def click_on(self, selector: str) -> None:
        """Click in the middle of an element."""
        result = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{result}.scrollIntoView({{block: 'nearest'}})")
        box = self.box(selector)
        self.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def box(self, selector: str) -> dict[str, float]:
        """Where an element is on the page."""
        result = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
        return self.evaluate(result)

    def screenshot(self, path: Path) -> None:
        """Write a picture of the page."""
        self.frame()
        data = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))
