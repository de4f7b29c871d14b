"""One of `spec.mirrors`: its three connectors as the keys of one flow. Driver only."""

from __future__ import annotations

from typing import Final

from heliograph.config.findings import Findings
from heliograph.config.mm2.keys import FLOW_BY_NAME
from heliograph.config.mm2.properties import Property
from heliograph.config.strimzi.parts import Part

_SOURCE: Final = "sourceConnector"
_CHECKPOINT: Final = "checkpointConnector"
_HEARTBEAT: Final = "heartbeatConnector"
_OPERATORS: Final = ("version", "autoRestart", "listOffsets", "alterOffsets")
_PATTERNS: Final = (
    ("topicsPattern", "topics"),
    ("topicsBlacklistPattern", "topics.exclude"),
    ("topicsExcludePattern", "topics.exclude"),
    ("groupsPattern", "groups"),
    ("groupsBlacklistPattern", "groups.exclude"),
    ("groupsExcludePattern", "groups.exclude"),
)
"""Of two for one key the later wins."""


def flow_settings(mirror: Part, findings: Findings, *, is_old: bool) -> list[Property]:
    """Names without the pair of the flow. `is_old`: of a layout before Strimzi 0.49."""
    flow = _Flow(mirror, findings)
    runs = {name: flow.connector(name) for name in (_SOURCE, _CHECKPOINT)}
    runs[_HEARTBEAT] = flow.connector(_HEARTBEAT) if is_old else False
    for field, key in _PATTERNS:
        text = mirror.text(field)
        if text is not None:
            flow.put(key, text.value, text.line)
    flow.decide("enabled", runs[_SOURCE], _SOURCE)
    if not runs[_CHECKPOINT]:
        flow.decide("emit.checkpoints.enabled", False, _CHECKPOINT)
        flow.decide("sync.group.offsets.enabled", False, _CHECKPOINT)
    if not runs[_HEARTBEAT]:
        flow.decide("emit.heartbeats.enabled", False, _HEARTBEAT)
    elif "emit.heartbeats.enabled" not in flow.settings:
        flow.decide("emit.heartbeats.enabled", True, _HEARTBEAT)
    return list(flow.settings.values())


class _Flow:
    def __init__(self, mirror: Part, findings: Findings) -> None:
        self._mirror, self._findings = mirror, findings
        self.settings: dict[str, Property] = {}

    def connector(self, name: str) -> bool:
        """Takes its settings; whether it runs."""
        part = self._mirror.part(name)
        if part is None:
            if name == _SOURCE:
                sentence = "missing, so nothing would be mirrored"
                path = f"{self._mirror.path}.{name}"
                self._findings.problem_at(path, sentence, line=self._mirror.line)
            return False
        for entry in part.settings("config"):
            self._add(part, entry)
        tasks = part.text("tasksMax")
        if tasks is not None and name == _SOURCE:
            self.put("tasks.max", tasks.value, tasks.line)
        for field in part.pass_over(*_OPERATORS):
            sentence = "does nothing here: it is for Strimzi's operator"
            self._findings.note_at(f"{part.path}.{field}", sentence, line=part.line)
        runs = self._runs(part)
        part.refuse_the_rest()
        return runs

    def put(self, key: str, value: str, line: int) -> None:
        self.settings[key] = Property(key=key, value=value, line=line)

    def decide(self, key: str, is_on: bool, connector: str) -> None:
        """What follows from a connector that is there, or is not, or does not run."""
        value, earlier = "true" if is_on else "false", self.settings.get(key)
        if earlier is not None and earlier.value != value:
            path = f"{self._mirror.path}.{connector}"
            sentence = f"is absent or does not run, so `{key}` is {value}"
            self._findings.note_at(path, sentence, line=earlier.line)
        self.put(key, value, self._mirror.line)

    def _add(self, part: Part, entry: Property) -> None:
        """A flow has one value where three connectors may have three."""
        earlier = self.settings.setdefault(entry.key, entry)
        if earlier.value == entry.value:
            return
        path = f"{part.path}.config.{entry.key}"
        key = FLOW_BY_NAME.get(entry.key)
        if key is not None and key.inert is None:
            sentence = f"differs from line {earlier.line}; a flow has one value for all connectors"
            self._findings.problem_at(path, sentence, line=entry.line)
        else:
            sentence = f"ignored: line {earlier.line} has another value, which wins"
            self._findings.note_at(path, sentence, line=entry.line)

    def _runs(self, part: Part) -> bool:
        state, paused = part.text("state"), part.text("pause")
        for text, stops in ((state, ("paused", "stopped")), (paused, ("true",))):
            if text is not None and text.value in stops:
                self._findings.note_at(
                    text.path,
                    f"is `{text.value}`, so the connector's work is not done",
                    line=text.line,
                )
                return False
        if state is not None and state.value != "running":
            sentence = f"is `{state.value}`, not `running`, `paused` or `stopped`"
            self._findings.problem_at(state.path, sentence, line=state.line)
        return True
