"""What one scrape is answered, and what one push sends. Runs on the driver."""

from __future__ import annotations

from heliograph.config.metrics import Compat
from heliograph.config.schema import MirrorConfig
from heliograph.driver.live import LiveMirror
from heliograph.metrics.compat import SPELLINGS, Windows, compat_families
from heliograph.metrics.exposition import exposed
from heliograph.metrics.families import Family
from heliograph.metrics.gather import Gatherer, Looked
from heliograph.metrics.native import native_families, shown_topics
from heliograph.model import FlowId


class Metrics:
    """Of one running mirror; belongs to its loop."""

    def __init__(self, live: LiveMirror) -> None:
        self._config: MirrorConfig = live.config
        self._settings = live.config.api.metrics
        self._gatherer = Gatherer(live)
        self._windows = Windows()

    async def exposed(
        self,
        flows: frozenset[FlowId],
        *,
        openmetrics: bool,
        gzipped: bool = False,
        lanes: bool | None = None,
        compat: Compat | None = None,
    ) -> bytes:
        """What is None is as the file says. Kept for a second at least."""
        with_lanes = self._settings.lanes if lanes is None else lanes
        spelling = self._settings.compat if compat is None else compat

        def make(looked: Looked) -> bytes:
            found = self.families(looked, lanes=with_lanes, compat=spelling)
            return exposed(found, openmetrics=openmetrics, gzipped=gzipped)

        # Zipped once for all who ask for it meanwhile: a scrape that is too frequent costs little.
        key, jvm = (flows, with_lanes, spelling, openmetrics, gzipped), spelling != "none"
        return await self._gatherer.made(key, flows, make, jvm=jvm)

    async def looked(self) -> Looked:
        return await self._gatherer.look(frozenset(flow.id for flow in self._config.flows))

    def families(
        self, looked: Looked, *, lanes: bool, compat: Compat | None = None
    ) -> list[Family]:
        """May be called on a thread, one at a time."""
        topics_max = self._settings.topics_max
        found = native_families(looked, lanes=lanes, topics_max=topics_max)
        spelling = SPELLINGS.get(self._settings.compat if compat is None else compat)
        if spelling is not None:
            shown = shown_topics(looked, topics_max)
            found += compat_families(looked, self._config, spelling, shown, self._windows)
        return found
