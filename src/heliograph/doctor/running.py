"""Ask a running driver how fast it is, over its REST server. Does I/O; runs on the driver."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from heliograph.config.api import ApiConfig
from heliograph.config.schema import MirrorConfig
from heliograph.doctor.bottleneck import Pace
from heliograph.model import FlowId

_ANSWER_S: Final = 5.0
_SAMPLE_S: Final = 1.0
_PAGE: Final = 10_000


def paces_of(config: MirrorConfig) -> Mapping[FlowId, Pace]:
    """One for each flow; why there are no figures is said in it. Blocks for seconds."""
    flows = [flow.id for flow in config.flows]
    try:
        lanes, slots = _ask(config.api, f"lanes?page_size={_PAGE}"), _ask(config.api, "slots")
        busiest = _busiest(slots["slots"])
    except _NotAsked as exc:
        return {flow: Pace(flow=flow, why_not=str(exc)) for flow in flows}
    room = config.engine.bytes_max * max(1, len(slots["slots"]))
    return {flow: _pace(flow, lanes["lanes"], room, busiest) for flow in flows}


class _NotAsked(Exception):
    pass


def _ask(api: ApiConfig, what: str) -> Any:
    if api.listen is None or api.listen.port == 0:
        raise _NotAsked("api.listen is not set")
    secured = api.tls.certificate is not None
    url = f"{'https' if secured else 'http'}://{api.listen}/v1/{what}"
    context = _trusting(api.tls.certificate) if secured else None
    try:
        # On this machine or under the name it was told to listen at; a driver elsewhere that
        # listens on its own loopback is not found.
        with urllib.request.urlopen(url, timeout=_ANSWER_S, context=context) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as exc:
        exc.close()
        needs = "; its API needs a token" if exc.code in (401, 403) else ""
        raise _NotAsked(f"{api.listen} answered {exc.code}{needs}") from exc
    except (OSError, ValueError) as exc:
        raise _NotAsked(f"no driver answers at {api.listen}") from exc


def _trusting(certificate: str | None) -> ssl.SSLContext:
    """The server's own certificate is at hand, so no authority is needed for it."""
    try:
        context = ssl.create_default_context(cafile=certificate)
    except OSError as exc:
        raise _NotAsked(f"{certificate} cannot be read") from exc
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _pace(flow: FlowId, lanes: list[Any], room_bytes: int, busiest: float | None) -> Pace:
    mine = [lane for lane in lanes if lane["flow"] == str(flow)]
    if not mine:
        return Pace(flow=flow, why_not="the driver at api.listen has no lane of it")
    copying = [lane for lane in mine if lane["state"] == "copying"]
    held = sum(max(0, lane["received_bytes"] - lane["bytes"]) for lane in mine)
    return Pace(
        flow=flow,
        lag_records=sum(lane["lag_records"] or 0 for lane in copying),
        bytes_per_s=sum(lane["bytes_per_s"] for lane in mine),
        held_share=min(1.0, held / room_bytes),
        busiest_slot=busiest,
    )


def _busiest(slots: list[Any]) -> float | None:
    """Share of a core, where slots run on this machine; None where they do not."""
    pids = [slot["pid"] for slot in slots if slot["pid"]]
    before = {pid: used for pid in pids if (used := _cpu_s(pid)) is not None}
    if not before:
        return None
    time.sleep(_SAMPLE_S)
    return max(((_cpu_s(pid) or used) - used) / _SAMPLE_S for pid, used in before.items())


def _cpu_s(pid: int) -> float | None:
    """Of a Python process of this machine; another one may have the same id elsewhere."""
    try:
        if b"python" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return None
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / 100
