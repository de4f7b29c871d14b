"""The way to a row's far cluster, as long and as narrow as the row says. Runs on the driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, Self

from heliograph_tools.bench.rows import FarRow, Side
from heliograph_tools.bench.stage import Stage
from heliograph_tools.bench.systems import Route
from heliograph_tools.proxy import TcpProxy


class Link(Protocol):
    """Long and narrow within its `with` block."""

    def route(self, near: Route) -> Route:
        """The same route, over this link."""

    def carried_bytes(self) -> int:
        """So far, in the direction in which records go."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class NoLink:
    """Both clusters are near."""

    def route(self, near: Route) -> Route:
        return near

    def carried_bytes(self) -> int:
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class FarLink:
    def __init__(self, row: FarRow, proxy: TcpProxy, bootstrap: str) -> None:
        self._row = row
        self._proxy = proxy
        self._bootstrap = bootstrap

    def route(self, near: Route) -> Route:
        if self._row.far is Side.SOURCE:
            return replace(near, source_bootstrap=self._bootstrap)
        return replace(near, target_bootstrap=self._bootstrap)

    def carried_bytes(self) -> int:
        reading = self._row.far is Side.SOURCE
        return (self._proxy.back if reading else self._proxy.out).bytes_forwarded

    def __enter__(self) -> Self:
        self._proxy.delay_ms = self._row.round_trip_ms // 2
        self._proxy.bytes_per_s = self._row.bytes_per_s
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.delay_ms = 0
        self._proxy.bytes_per_s = None


def far_link(stage: Stage, row: FarRow) -> FarLink:
    if row.far is Side.SOURCE:
        return FarLink(row, stage.source_link, stage.source.proxied_bootstrap)
    return FarLink(row, stage.target_link, stage.target.proxied_bootstrap)
