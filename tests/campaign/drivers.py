"""The mirror's own processes: one leads, another stands by, and whichever dies has a successor."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from heliograph_tools.localkafka.ports import PortHold
from tests.kit.runs import ROOT, MirrorRun, mirror_runs
from tests.kit.topics import wait_until

_ELSEWHERE: Final = (
    f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); "
    "from heliograph import processes; "
    "processes.machine_id = lambda: f'machine of {os.getpid()}'; "
)
"""Nothing but the lease tells one driver of the other's end, as if each had a machine."""
ON_SPARK: Final = ("-c", _ELSEWHERE + "from heliograph.cli.app import main; main()")
ON_THREADS: Final = ("-c", _ELSEWHERE + "from tests.kit.without_spark import main; main()")
_ANSWER_S: Final = 5.0
_END_S_MAX: Final = 120.0
_LED_S_MAX, _POLL_S = 8.0, 0.2


class NoAnswer(Exception):
    """A driver that is stopped, starting or dead, or that the network does not reach."""


class Driver:
    """One `heliograph run` with a REST server."""

    def __init__(
        self, file: Path, log: Path, token: str, arguments: Sequence[str], program: Sequence[str]
    ) -> None:
        hold = PortHold()
        listen = f"127.0.0.1:{hold.port}"
        hold.close()
        self.url, self._token = f"http://{listen}", token
        self.log = log
        self.is_stopped = False
        """By SIGSTOP."""
        self.began_s = time.monotonic()
        self.run = MirrorRun(file, log, *arguments, "--api", listen, program=program)

    @property
    def has_ended(self) -> bool:
        return self.run.exit_code is not None

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer; `NoAnswer` where none came."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as response:
                text = response.read()
                return response.status, json.loads(text) if text else None
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode(errors="replace")[:500]
        except (OSError, ValueError) as exc:
            raise NoAnswer(f"{method} {path}: {exc}") from exc

    def get(self, path: str) -> Any:
        status, answer = self.call("GET", path)
        if status != 200:
            raise NoAnswer(f"GET {path}: {status} {answer}")
        return answer


class Drivers:
    """Those that should run now, and the logs of all that ever did."""

    def __init__(
        self,
        file: Path,
        folder: Path,
        token: str,
        *,
        count: int,
        arguments: Sequence[str],
        program: Sequence[str],
    ) -> None:
        self._file, self._folder, self._token = file, folder, token
        self._arguments, self._program = tuple(arguments), tuple(program)
        self._stack = mirror_runs()
        self._runs = self._stack.__enter__()
        self.count = count
        self.current: list[Driver] = []
        self.every: list[Driver] = []

    def close(self) -> None:
        for driver in self.every:
            self.wake(driver)
        self._stack.__exit__(None, None, None)

    def fill(self) -> None:
        """As many as there should be."""
        while len(self.current) < self.count:
            log = self._folder / f"driver-{len(self.every)}.log"
            driver = Driver(self._file, log, self._token, self._arguments, self._program)
            self._runs.append(driver.run)
            self.current.append(driver)
            self.every.append(driver)

    def leader(self, flow: str = "") -> Driver:
        """The one that leads the flow, or else most of them; `NoAnswer` where none comes to."""
        deadline_s = time.monotonic() + _LED_S_MAX
        while time.monotonic() < deadline_s:
            counts = {driver: len(led) for driver, led in self._led().items() if flow in (*led, "")}
            found = max(counts, key=lambda driver: counts[driver], default=None)
            if found is not None and counts[found]:
                return found
            time.sleep(_POLL_S)
        raise NoAnswer(f"no driver says that it leads {flow or 'anything'}")

    def _led(self) -> dict[Driver, set[str]]:
        return {driver: self.led_by(driver) for driver in self.answering()}

    def led_by(self, driver: Driver) -> set[str]:
        with suppress(NoAnswer):
            flows = driver.get("/v1/flows")["flows"]
            return {each["flow"] for each in flows if each["state"] == "leading"}
        return set()

    def answering(self) -> list[Driver]:
        return [each for each in self.current if not each.is_stopped and not each.has_ended]

    def kill(self, driver: Driver) -> None:
        self.current.remove(driver)
        self.wake(driver)
        driver.run.kill_driver()
        self.fill()

    def stop(self, driver: Driver) -> int:
        """SIGTERM: it drains, and lets its leases go."""
        self.current.remove(driver)
        driver.run.send_signal(signal.SIGTERM)
        self.fill()
        return driver.run.wait(_END_S_MAX)

    def freeze(self, driver: Driver) -> None:
        driver.is_stopped = True
        driver.run.send_signal(signal.SIGSTOP)

    def wake(self, driver: Driver) -> None:
        if driver.is_stopped and not driver.has_ended:
            driver.run.send_signal(signal.SIGCONT)
        driver.is_stopped = False

    def await_leaders(self, flows: Sequence[str], timeout_s: float) -> None:
        def all_led() -> bool:
            return set(flows) <= set[str]().union(*self._led().values())

        wait_until(all_led, f"a leader of each of {flows}", timeout_s=timeout_s, poll_s=0.2)
