"""Which flows of a file one process looks after; the rest are left to others. Runs on the driver.

`clusters` is MirrorMaker 2's `--clusters`: the pairs whose target is one of them, heartbeats
included. Pairs that were not chosen stay in the configuration: what they write is still not to be
deleted or overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heliograph.config.schema import MirrorConfig
from heliograph.errors import ConfigError
from heliograph.model import FlowId


def choose(
    config: MirrorConfig, *, clusters: Sequence[str] = (), flows: Sequence[str] = ()
) -> MirrorConfig:
    """The same with only these flows to look after; with both, those that satisfy both.

    Raises `ConfigError` for what the file does not have, and where nothing is left to do.
    """
    if not clusters and not flows:
        return config
    _require_known("clusters", clusters, config.clusters)
    wanted = tuple(flow.replace(" ", "") for flow in flows)
    _require_known("flow", wanted, [str(flow.id) for flow in config.every_flow])
    chosen = {pair.id for pair in config.pairs}
    if clusters:
        chosen &= {pair.id for pair in config.pairs if pair.id.target in clusters}
    if wanted:
        chosen &= set(_with_ways_back(config, wanted))
    made = config.model_copy(update={"chosen": frozenset(chosen)})
    if not any(pair.enabled or pair.heartbeats.enabled for pair in made.chosen_pairs):
        said = [f"a target among {', '.join(clusters)}"] if clusters else []
        said += [f"the name {', '.join(wanted)}"] if wanted else []
        raise ConfigError(
            "--clusters" if clusters else "--flow", (f"no enabled flow has {' and '.join(said)}",)
        )
    return made


def _with_ways_back(config: MirrorConfig, wanted: Sequence[str]) -> Iterable[FlowId]:
    """A pair that mirrors nothing and only writes heartbeats goes with the flow the other way: its
    heartbeats are what that flow is measured by."""
    for pair in config.pairs:
        back = FlowId(source=pair.id.target, target=pair.id.source)
        if str(pair.id) in wanted or (str(back) in wanted and not pair.enabled):
            yield pair.id


def _require_known(option: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    names = list(known)
    what = "a cluster" if option == "clusters" else "an enabled flow"
    unknown = [name for name in wanted if name not in names]
    if unknown:
        problems = [f"{name!r} is not {what} of the file: {', '.join(names)}" for name in unknown]
        raise ConfigError(f"--{option}", tuple(problems))
