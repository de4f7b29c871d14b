"""Remarks that are made once, whoever comes upon them first. Runs on the driver."""

from __future__ import annotations

import threading


class LogOnce:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: set[str] = set()

    def is_new(self, text: str) -> bool:
        """Whether nobody has asked this before."""
        with self._lock:
            if text in self._texts:
                return False
            self._texts.add(text)
            return True
