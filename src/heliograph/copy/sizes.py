"""The largest batch a target topic takes, asked once it refused one. Runs on executors.

A record that is too large would otherwise be found by sending it alone, and each cost a look at the
log. A leader that does not tell, or may not, leaves it at that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from heliograph.broker.described import setting_at
from heliograph.copy.lane import CarriedLane
from heliograph.errors import MirrorError, NotAuthorised

log = logging.getLogger(__name__)

_KEY = "max.message.bytes"


async def learn_sizes(lanes: Iterable[CarriedLane]) -> None:
    """Of lanes of which a batch was refused as too large since they were asked for last."""
    for lane in lanes:
        if not lane.learned.asks_size:
            continue
        lane.learned.asks_size = False
        target = lane.spec.target
        try:
            told = await setting_at(lane.flow.target, target, _KEY)
        except NotAuthorised as exc:
            lane.learned.hides_size = True
            log.info("%s; each record that may be too large is tried", exc)
            continue
        except MirrorError:
            # The lane is looked up next, and says itself what is wrong with the target.
            continue
        if told is not None and told.isdecimal():
            lane.learned.take_size(int(told))
