"""Whether the pipeline wrote each row that it should, once, unchanged, and no other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.campaign.checks import Finding
from tests.campaign.layout import PIPED, PIPED_BYTES
from tests.campaign.plan import PIPELINE
from tests.campaign.truth import Content, Fate, settle
from tests.campaign.world import World
from tests.kit.records import Rec, read_all

ARRIVED_S_MAX: Final = 120.0
_SHOWN: Final = 5


def look_at_pipeline(world: World) -> list[Finding]:
    """Waits until all rows are there, or for two minutes."""
    if PIPELINE not in world.workloads:
        return []
    wanted = _wanted(world)
    deadline_s = time.monotonic() + ARRIVED_S_MAX
    while True:
        rows = [rec for some in read_all(world.clusters["B"], PIPED).values() for rec in some]
        if len(rows) >= len(wanted) or time.monotonic() > deadline_s:
            return check_rows(wanted, rows)
        time.sleep(1.0)


def _wanted(world: World) -> list[Content]:
    wanted: list[Content] = []
    for topic in world.topics[PIPELINE]:
        sent = world.truth.of("A", topic)
        settle(sent, read_all(world.clusters["A"], topic), 0)
        wanted += [each.content for each in sent if each.fate is Fate.COMMITTED]
    return [each for each in wanted if each[1] is not None and len(each[1]) > PIPED_BYTES]


def check_rows(wanted: Sequence[Content], rows: Iterable[Rec]) -> list[Finding]:
    """Rows of all partitions together: which of them a row goes to is the query's to say. Pure."""
    have = Counter(rec.content for rec in rows)
    should = Counter(wanted)
    groups: Mapping[str, Counter[Content]] = {
        "lost-write": should - have,
        "duplicate": Counter({each: count - 1 for each, count in have.items() if count > 1}),
        "phantom": Counter({each: count for each, count in have.items() if each not in should}),
    }
    found: list[Finding] = []
    for name, some in groups.items():
        for content in list(some)[:_SHOWN]:
            what = f"{content[2]} ({some.total()} in all)"
            found.append(Finding(check=name, lane=f"pipeline piped to {PIPED}", what=what))
    return found
