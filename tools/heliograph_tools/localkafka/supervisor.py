"""Run one broker and take it down with its owner. Runs beside the broker's JVM, as a script.

    supervisor.py LOG FOLDER COMMAND...

The owner keeps the other end of our stdin open. When it closes, because the owner stopped us or
was killed in any way, the broker is killed and FOLDER removed; the folder above FOLDER follows when
no broker is left in it. A broker that ends by itself keeps its folder, so it can be started again.
Imports only the standard library: it is run as a file with `python -I -S`.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OWNER_CHECK_S = 2.0


def main(log_path: str, folder: str, command: list[str]) -> int:
    owner_pid = os.getppid()
    wakeup, wakeup_writer = socket.socketpair()
    wakeup_writer.setblocking(False)
    signal.set_wakeup_fd(wakeup_writer.fileno())
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    with Path(log_path).open("ab") as log:
        broker = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
    sys.stdout.write(f"{broker.pid}\n")
    sys.stdout.flush()
    while broker.poll() is None:
        ready, _, _ = select.select([0, wakeup.fileno()], [], [], _OWNER_CHECK_S)
        if wakeup.fileno() in ready:
            wakeup.recv(64)
        owner_closed = 0 in ready and os.read(0, 64) == b""
        # A forked child of the owner may keep the pipe open after the owner's death.
        if owner_closed or os.getppid() != owner_pid:
            broker.kill()
            broker.wait()
            _remove(Path(folder))
            return 0
    # Codes of signals are negative; 128 + number is how a shell would tell them.
    return broker.returncode if broker.returncode >= 0 else 128 - broker.returncode


def _die_with_parent() -> None:
    # Covers the supervisor's own death. The signal follows the thread that forked, which here is
    # the only one.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not any(folder.parent.glob("broker-*")):
        shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
