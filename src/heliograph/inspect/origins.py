"""Whether a flow can tell what mirrors brought to its source: a look at their ledgers. Driver only.

A lane that may not read them stalls when it first meets a batch that a mirror may have written;
here that is said before, with the ACL that is missing.
"""

from __future__ import annotations

from heliograph.broker.cluster import open_cluster
from heliograph.config.schema import MirrorConfig
from heliograph.copy.flow import mirrors_of, producers_of_mirrors
from heliograph.errors import MirrorError, NotAuthorised
from heliograph.ledger.access import within
from heliograph.ledger.entries import ledger_topic
from heliograph.model import FlowId, LoopPrevention

_ANSWER_S_MAX = 10.0


async def words_on_origins(config: MirrorConfig, flow: FlowId) -> str:
    """A sentence where what mirrors wrote on the source cannot be told; "" where it can."""
    if config.loop_prevention_of(flow) is LoopPrevention.NONE:
        return ""
    source = open_cluster(config.source_of(flow), "consumer", only_reads=True)
    try:
        asked = producers_of_mirrors(config, flow, source)
        await within(asked, _ANSWER_S_MAX, f"cluster {source.alias}")
    except NotAuthorised as exc:
        named = ", ".join(ledger_topic(alias) for alias in mirrors_of(config, flow))
        return (
            f"{exc}; loop.prevention of {flow} needs READ on topic {named} of {flow.source} for "
            "its consumer, or its lanes stall at the first batch that a mirror may have written"
        )
    except MirrorError as exc:
        return f"{exc}; what mirrors brought to {flow.source} is not known"
    finally:
        source.close()
    return ""
