"""A real Chromium, from Debian's package: fetched once into the cache folder, not installed.

It is spoken to over a pipe in its own DevTools protocol, which needs no other package: what tests
do is to load, look, click and type.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from heliograph.cache import cache_folder

PACKAGE: Final = "chromium-headless-shell"
_FETCH_S_MAX: Final = 300
_ANSWER_S_MAX: Final = 60.0
_FD_MIN: Final = 10
_EVENTS_MAX: Final = 500
_FLAGS: Final = (
    "--no-sandbox",  # of a container that runs as root; only our own pages are loaded
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Chromium expects the pipe as descriptors 3 and 4, which pytest has already.
_LAUNCH: Final = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def program() -> Path:
    """Fetching it must work, so a test never does without."""
    installed = shutil.which(PACKAGE)
    if installed is not None:
        return Path(installed)
    folder = cache_folder() / "chromium"
    folder.mkdir(parents=True, exist_ok=True)
    found = folder / "usr/lib/chromium" / PACKAGE
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _fetch(folder)
    return found


def _fetch(folder: Path) -> None:
    """The package and the libraries that this machine lacks."""
    planned = subprocess.run(
        ["apt-get", "install", "-s", "-q", "--no-install-recommends", PACKAGE],
        check=True,
        timeout=_FETCH_S_MAX,
        capture_output=True,
        text=True,
    )
    lacking = re.findall(r"^Inst (\S+)", planned.stdout, re.MULTILINE)
    with tempfile.TemporaryDirectory() as downloads:
        command = ["apt-get", "download", "-q", *lacking]
        subprocess.run(command, cwd=downloads, check=True, timeout=_FETCH_S_MAX)
        unpacked = Path(downloads) / "unpacked"
        for package in Path(downloads).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)
        # Chromium last: while it is not there, the fetch is not done.
        for part in ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib/chromium"):
            if (unpacked / part).exists():
                shutil.copytree(unpacked / part, folder / part, dirs_exist_ok=True)


def _environment(chromium: Path) -> dict[str, str]:
    root = chromium.parents[3]
    libraries = [*(root / "usr/lib").glob("*-linux-gnu")] if root != Path("/") else []
    paths = [str(path) for each in libraries for path in (each, each / "pulseaudio")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(paths)} if paths else dict(os.environ)


class Browser:
    """One Chromium; every page is a tab with storage of its own."""

    def __init__(self, sends: int, hears: int) -> None:
        self._sends, self._hears = sends, hears
        self._number = 0
        self._rest = b""
        self.events: deque[dict[str, Any]] = deque(maxlen=_EVENTS_MAX)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._sends, json.dumps(message).encode() + b"\0")
        until_s = time.monotonic() + _ANSWER_S_MAX
        while True:
            heard = self._next(until_s)
            if heard.get("id") == self._number:
                assert "error" not in heard, f"{method}: {heard.get('error')}"
                return dict(heard["result"])
            if "method" in heard:
                self.events.append(heard)

    def page(self, url: str, *, dark: bool = False, width: int = 1280, height: int = 900) -> Page:
        """A tab that has loaded the address."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"], target["targetId"])
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        page.use_scheme("dark" if dark else "light")
        page.load(url)
        return page

    def _next(self, until_s: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._hears], [], [], max(0, until_s - time.monotonic()))
            assert ready, "Chromium does not answer"
            part = os.read(self._hears, 1 << 20)
            assert part, "Chromium has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))


class Page:
    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def load(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def use_scheme(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str, timeout_s: float = 20.0) -> Any:
        """Its value, once that is something."""
        until_s = time.monotonic() + timeout_s
        while True:
            found = self.run(expression)
            if found:
                return found
            assert time.monotonic() < until_s, f"not true: {expression}\n{self.text('body')}"
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def count(self, selector: str) -> int:
        return int(self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def click(self, selector: str) -> None:
        """As a person does: on what is there, and not covered."""
        named = json.dumps(selector)
        at = self.until(
            f"(() => {{ const it = document.querySelector({named});"
            " if (it === null) return null;"
            " it.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});"
            " const box = it.getBoundingClientRect();"
            " const at = {x: box.x + box.width / 2, y: box.y + box.height / 2};"
            " const hit = document.elementFromPoint(at.x, at.y);"
            " return hit !== null && it.contains(hit) ? at : null; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=at["x"],
                y=at["y"],
                button="left",
                clickCount=1,
            )

    def write(self, selector: str, text: str) -> None:
        """In the place of what stands there."""
        named = json.dumps(selector)
        self.run(
            f"(() => {{ const it = document.querySelector({named}); it.focus(); it.select(); }})()"
        )
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.press("Delete", 46)

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    @property
    def complaints(self) -> list[str]:
        """What the browser says of scripts that failed and of what the policy forbids."""
        own = [each for each in self._browser.events if each.get("sessionId") == self._session]
        failed = [str(e["params"]) for e in own if e["method"] == "Runtime.exceptionThrown"]
        logged = [e["params"]["entry"] for e in own if e["method"] == "Log.entryAdded"]
        # An answer such as 403 and a server that is gone are told as well.
        return failed + [
            str(e) for e in logged if e["source"] != "network" and e["level"] == "error"
        ]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Running until the end of the block."""
    found = program()
    (child_hears, sends), (hears, child_sends) = os.pipe(), os.pipe()
    handed = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FD_MIN) for fd in (child_hears, child_sends)]
    os.close(child_hears)
    os.close(child_sends)
    with tempfile.TemporaryDirectory(prefix="chromium-") as profile:
        command = [str(found), *_FLAGS, f"--user-data-dir={profile}"]
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", _LAUNCH, *map(str, handed), *command],
            pass_fds=handed,
            env=_environment(found),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in handed:
            os.close(fd)
        try:
            browser = Browser(sends, hears)
            yield browser
            browser.call("Browser.close")
            child.wait(timeout=20)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            os.close(sends)
            os.close(hears)
