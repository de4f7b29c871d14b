"""What reader and writer of `format("heliograph")` have in common: a file, a cluster, no
credentials. Runs on the driver.

Credentials are never among the options: Spark shows those in plans and its UI.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig
from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias

_AS_SPARK_HAS_IT: Final = {
    "maxOffsetsPerTrigger": "maxRecordsPerTrigger",
    "targetTopic": "topic",
    "triggerRecordsMax": "maxRecordsPerTrigger",
}
"""What an option is called elsewhere: in Spark's own source, in the file."""
_OF_SPARK: Final = ("path", "paths", "checkpointlocation", "queryname")


def named(given: Mapping[str, str], known: Collection[str], problems: list[str]) -> dict[str, str]:
    """By the names that are documented, however they are spelt: Spark gives them in lower case, an
    argument of `exactly_once` is `on_error`, a key of the file `on.error`."""
    by_name = {_bare(name): name for name in known} | {
        _bare(name): ours for name, ours in _AS_SPARK_HAS_IT.items() if ours in known
    }
    found: dict[str, str] = {}
    for name, value in given.items():
        option = by_name.get(_bare(name))
        if option is not None and option in found and found[option] != value:
            problems.append(f"option {option} is given twice, as {found[option]} and {value}")
        elif option is not None:
            found[option] = value
        elif name.lower() not in _OF_SPARK:
            problems.append(f"option {name} is unknown")
    return found


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace(".", "").replace("-", "")


def cluster_of(
    given: Mapping[str, str],
    problems: list[str],
    clusters: Mapping[str, ClusterConfig] | None = None,
) -> ClusterConfig | None:
    """The cluster that `config` and `cluster` name, or `cluster` alone where it is known."""
    file, alias = given.get("config"), given.get("cluster")
    if file is None and alias is not None and clusters and alias in clusters:
        return clusters[alias]
    if file is None or alias is None:
        problems.append(
            "options config (a configuration file) and cluster (its alias there) are needed"
        )
        return None
    try:
        config = load_config(Path(file))
    except ConfigError as exc:
        problems += [f"{exc.source}: {problem}" for problem in exc.problems]
        return None
    found = config.clusters.get(ClusterAlias(alias))
    if found is None:
        known = ", ".join(sorted(config.clusters))
        problems.append(f"cluster {alias} is not in {file}, which has {known}")
    return found


def count_of(
    given: Mapping[str, str], name: str, problems: list[str], *, least: int = 1
) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < least:
        problems.append(f"{name} is {text}, not a number above {least - 1}")
        return None
    return int(text)
