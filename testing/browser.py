"""A real browser for pages that people look at: Chromium without a window, driven over a pipe.

Source: Chrome DevTools Protocol, with --remote-debugging-pipe: messages on file descriptors 3 and 4,
each ended by a zero byte.
"""

import base64
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import axe_core_python

_PROGRAMS: Final = ("chromium-headless-shell", "chromium", "google-chrome")
_PATIENCE: Final = 120
"""Seconds for an answer, on a machine that does much else."""
_AXE: Final = Path(axe_core_python.__file__).with_name("axe.min.js")


def find_browser() -> str | None:
    """The path of a browser; None if none is installed."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


class Browser:
    """A browser with one page.

    Attributes:
        events: All that it told unasked, such as requests, errors and dialogs.
    """

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def open(
        self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False
    ) -> None:
        """Load a file or an address in a new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._take(self._receive())

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Press a key on the keyboard."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text or ("\r" if key == "Enter" else "")} if kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed
            )

    def type(self, text: str) -> None:
        """Type text into the focused element."""
        for char in text:
            self.press(char, char)

    def screenshot(self, path: Path) -> None:
        """Save the content of the window as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def accessibility_violations(self) -> list[str]:
        """Return axe's findings about the page: rule, elements, and reason."""
        self.evaluate(_AXE.read_text(encoding="utf-8") + "; null")
        violations = self.evaluate("axe.run(document).then((result) => result.violations)")
        return [
            f"{violation['id']}: {node['target']} {node['failureSummary']}"
            for violation in violations
            for node in violation["nodes"]
        ]

    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Errors of scripts, violations of the policy, and dialogs."""
        methods = {"Log.entryAdded", "Runtime.exceptionThrown", "Page.javascriptDialogOpening"}
        return [json.dumps(event) for event in self.events if event["method"] in methods]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writer, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._take(answer)

    def _take(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.events.append(message)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reader], [], [], _PATIENCE)
            assert ready, f"the browser says nothing for {_PATIENCE} s"
            data = os.read(self._reader, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


@contextmanager
def browser(program: str, folder: Path) -> Iterator[Browser]:
    """Run a browser with its profile in a folder."""
    to_browser, writer = os.pipe()
    reader, from_browser = os.pipe()
    script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
    flags = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder}",
    )
    process = subprocess.Popen(
        ["bash", "-c", script, program, *flags],
        pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Browser(reader, writer)
    finally:
        os.close(writer)
        os.close(reader)
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
