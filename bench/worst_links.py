"""The worst links: a thousand lanes over a tenth of a megabyte a second, a kilobyte a second, a
broker that answers after a minute. What is copied, what is shown, and that nothing is lost.

    python -m bench.worst_links

Writes bench/results/far/worst-links.json. Needs brokers, no Spark; runs on the driver. Six minutes.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import RECORDS_ONLY, Route, lasting_topic, route, write_config
from tests.kit.records import numbered, produce

from heliograph.model import badge
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.localkafka.cluster import ClusterSpec, local_clusters
from heliograph_tools.proxy import TcpProxy

RESULTS: Final = Path(__file__).parent / "results" / "far" / "worst-links.json"
_LOOK_S: Final = 1.0
_GIVE_UP_S: Final = 900.0
_CUT_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How bad the link to the source is, for how long, and what waits behind it."""

    name: str
    lanes: int
    records: int
    value_bytes: int
    delay_ms: int
    """One way."""
    bytes_per_s: int | None
    cut_every_s: float | None = None
    heals_after_s: float | None = None
    """When the link is made good again; None: all must cross it as it is."""


LINKS: Final = (
    Link(
        name="a thousand lanes, 300 ms, 0.1 MB/s, cut every minute",
        lanes=1_000,
        records=60_000,
        value_bytes=90,
        delay_ms=150,
        bytes_per_s=100_000,
        cut_every_s=_CUT_EVERY_S,
    ),
    Link(
        name="a kilobyte a second",
        lanes=3,
        records=1_500,
        value_bytes=20,
        delay_ms=0,
        bytes_per_s=1_000,
        heals_after_s=60.0,
    ),
    Link(
        name="a broker that answers after a minute",
        lanes=3,
        records=300,
        value_bytes=20,
        delay_ms=30_000,
        bytes_per_s=None,
        heals_after_s=100.0,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    link: Link
    bad_s: float
    """For how long the link was bad, or until all had crossed it."""
    copied_meanwhile: int
    """Records."""
    shown: dict[str, int]
    """States of lanes, each counted once a second."""
    crossed_bytes: int
    """From the source, while the link was bad."""
    link_share: float | None
    """Of what it could have carried."""
    lost: int
    repeated: int


@contextmanager
def behind(proxy: TcpProxy, root: Path) -> Iterator[tuple[Route, InsideMirror]]:
    """A mirror whose source is behind the proxy, and what it is to copy."""
    specs = [ClusterSpec(alias="far", advertised_ports=(proxy.port,)), ClusterSpec(alias="near")]
    with local_clusters(specs, root=root / "clusters") as made:
        proxy.target_port = made["far"].broker(0).ports.proxied
        config = write_config(
            root / "mm2.properties",
            {"far": made["far"].proxied_bootstrap, "near": made["near"]},
            {"far->near": {"topics": "worst-.*"}},
            top=RECORDS_ONLY,
        )
        with running_inside(config) as mirror:
            yield route(config, ("far", made["far"]), ("near", made["near"])), mirror


def measure(link: Link, number: int, proxy: TcpProxy, way: Route, mirror: InsideMirror) -> Outcome:
    name = lasting_topic(way.source, f"worst-{number}", partitions=link.lanes)
    produce(way.source, name, numbered(link.lanes, partitions=link.lanes))
    _wait(lambda: way.appended(name) == link.lanes, "one record of each lane")
    produce_s = time.monotonic()
    proxy.delay_ms, proxy.bytes_per_s = link.delay_ms, link.bytes_per_s
    crossed, next_cut_s = proxy.back.bytes_forwarded, link.cut_every_s or _GIVE_UP_S
    records = numbered(
        link.records, partitions=link.lanes, start=link.lanes, value_bytes=link.value_bytes
    )
    produce(way.source, name, records)
    began_s, shown = time.monotonic(), Counter[str]()
    print(f"{link.name}: {link.records:,} records written in {began_s - produce_s:.1f} s")
    wanted = link.lanes + link.records
    while way.appended(name) < wanted and (bad_s := time.monotonic() - began_s) < _GIVE_UP_S:
        if link.heals_after_s is not None and bad_s >= link.heals_after_s:
            break
        if bad_s >= next_cut_s:
            proxy.cut()
            next_cut_s += link.cut_every_s or _GIVE_UP_S
        shown.update(_states(mirror, name))
        time.sleep(_LOOK_S)
    bad_s = time.monotonic() - began_s
    copied = way.appended(name) - link.lanes
    crossed = proxy.back.bytes_forwarded - crossed
    proxy.delay_ms, proxy.bytes_per_s = 0, None
    proxy.cut()
    _wait(lambda: way.appended(name) >= wanted, "the rest of the records")
    arrived = way.assert_arrives(name)
    way.assert_exact_map(name)
    able = None if link.bytes_per_s is None else link.bytes_per_s * bad_s
    return Outcome(
        link=link,
        bad_s=round(bad_s, 1),
        copied_meanwhile=copied,
        shown=dict(shown),
        crossed_bytes=crossed,
        link_share=None if able is None else round(crossed / able, 3),
        lost=max(0, wanted - arrived),
        repeated=max(0, arrived - wanted),
    )


def _states(mirror: InsideMirror, topic: str) -> Iterator[str]:
    for at in mirror.slots.progress().values():
        if at.lane.source.topic == topic:
            yield badge(at.state)


def _wait(is_so: Callable[[], bool], what: str) -> None:
    ends_s = time.monotonic() + _GIVE_UP_S
    while not is_so():
        if time.monotonic() > ends_s:
            raise TimeoutError(f"{what}: not within {_GIVE_UP_S:.0f} s")
        time.sleep(_LOOK_S)


def main() -> None:
    found: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        TcpProxy() as proxy,
        behind(proxy, Path(folder)) as (way, mirror),
    ):
        for number, link in enumerate(LINKS):
            found.append(measure(link, number, proxy, way, mirror))
            print(json.dumps(asdict(found[-1]), indent=2))
    document = {"machine": asdict(this_machine()), "links": [asdict(each) for each in found]}
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
