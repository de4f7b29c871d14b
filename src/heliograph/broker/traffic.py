"""What was exchanged with one cluster: counted by request, never by record. Runs on executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heliograph.model import ClusterAlias, LinkFigures


@dataclass(slots=True)
class Traffic:
    """Of one client role to one cluster. Used by one event loop."""

    requests: int = 0
    failed: int = 0
    bytes: int = 0
    batches: int = 0
    retried_batches: int = 0
    answer_s: float = 0.0
    throttle_ms: int = 0
    request_bytes_max: int = 0
    batch_bytes_max: int = 0
    answer_s_max: float = 0.0
    in_flight: int = 0

    def departed(self) -> None:
        self.in_flight += 1

    def answered(self, request_bytes: int, answer_s: float, throttle_ms: int) -> None:
        """Well; `request_bytes` is what it carried, whichever way."""
        self.in_flight -= 1
        self.requests += 1
        self.bytes += request_bytes
        self.answer_s += answer_s
        self.throttle_ms += throttle_ms
        if request_bytes > self.request_bytes_max:
            self.request_bytes_max = request_bytes
        if answer_s > self.answer_s_max:
            self.answer_s_max = answer_s

    def lost(self) -> None:
        """No answer, or none that can be used."""
        self.in_flight -= 1
        self.requests += 1
        self.failed += 1

    def figures(self, cluster: ClusterAlias, way: Literal["from", "to"]) -> LinkFigures:
        """As of now; what was largest counts from here on anew."""
        found = LinkFigures(
            cluster=cluster,
            way=way,
            requests=self.requests,
            failed=self.failed,
            bytes=self.bytes,
            batches=self.batches,
            retried_batches=self.retried_batches,
            answer_ms=round(self.answer_s * 1000),
            throttle_ms=self.throttle_ms,
            request_bytes_max=self.request_bytes_max,
            batch_bytes_max=self.batch_bytes_max,
            answer_ms_max=round(self.answer_s_max * 1000),
            requests_in_flight=self.in_flight,
        )
        self.request_bytes_max = self.batch_bytes_max = 0
        self.answer_s_max = 0.0
        return found
