"""What happens to the mirror's own processes, and what its operator asks of it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from heliograph.audit.plan import AuditOptions
from tests.campaign.drivers import NoAnswer
from tests.campaign.layout import channels_of, flow_of
from tests.campaign.operations.kind import Detail, Kind, NotNow, one_channel_topic
from tests.campaign.world import World
from tests.kit.auditing import audited
from tests.kit.runs import ROOT

_FROZEN_S: Final = (0.5, 12.0)
_DECIDED_S: Final = (1, 8)
_DRILL_S_MAX: Final = 120.0
_DRILL_CODES: Final = (0, 1, 3)


def kill_leader(world: World, chance: random.Random) -> Detail:
    """kill -9; the other takes over, and another takes its place."""
    driver = world.drivers.leader()
    world.drivers.kill(driver)
    return {"driver": driver.log.stem}


def kill_any(world: World, chance: random.Random) -> Detail:
    driver = chance.choice(world.drivers.current)
    world.drivers.kill(driver)
    return {"driver": driver.log.stem}


def stop_leader(world: World, chance: random.Random) -> Detail:
    """SIGTERM: it drains first."""
    driver = world.drivers.leader()
    code = world.drivers.stop(driver)
    return {"driver": driver.log.stem, "code": code}


def freeze(world: World, chance: random.Random) -> Detail:
    """SIGSTOP; it wakes beside its successor and does not know what has happened."""
    running = world.drivers.answering()
    if not running:
        raise NotNow("every driver is stopped")
    driver, seconds = chance.choice(running), chance.uniform(*_FROZEN_S)
    world.drivers.freeze(driver)
    world.later(seconds, f"{driver.log.stem} is stopped", lambda: world.drivers.wake(driver))
    return {"driver": driver.log.stem, "seconds": round(seconds, 1)}


def kill_worker(world: World, chance: random.Random) -> Detail:
    """kill -9 of a process that copies."""
    workers = [each for driver in world.drivers.answering() for each in driver.run.workers()]
    if not workers:
        raise NotNow("no worker runs")
    worker = chance.choice(workers)
    worker.kill()
    return {"pid": worker.pid}


def freeze_worker(world: World, chance: random.Random) -> Detail:
    workers = [each for driver in world.drivers.answering() for each in driver.run.workers()]
    if not workers:
        raise NotNow("no worker runs")
    worker, seconds = chance.choice(workers), chance.uniform(*_FROZEN_S)
    worker.suspend()

    def wake() -> None:
        with suppress(Exception):
            worker.resume()

    world.later(seconds, f"worker {worker.pid} is stopped", wake)
    return {"pid": worker.pid, "seconds": round(seconds, 1)}


def pause(world: World, chance: random.Random) -> Detail:
    """Lanes of a topic rest for a while; taken back by a resume or by its time."""
    return _decide(world, chance, "pause", {"for_s": chance.randint(*_DECIDED_S)})


def throttle(world: World, chance: random.Random) -> Detail:
    more = {"bytes_per_s": chance.choice((2_000, 50_000, 5_000_000))}
    return _decide(world, chance, "throttle", {**more, "for_s": chance.randint(*_DECIDED_S)})


def move(world: World, chance: random.Random) -> Detail:
    """To another slot, while it is carried."""
    return _decide(world, chance, "move", {"slots": [chance.randrange(2)]})


def resume(world: World, chance: random.Random) -> Detail:
    """All that was decided is taken back."""
    driver = world.drivers.leader()
    ids = [(each["flow"], each["id"]) for each in driver.get("/v1/decisions")["decisions"]]
    answers = [
        driver.call("DELETE", f"/v1/decisions/{one}?flow={urllib.parse.quote(flow, safe='')}")[0]
        for flow, one in ids
    ]
    return {"withdrawn": len(ids), "answers": answers}


def preview_failover(world: World, chance: random.Random) -> Detail:
    """A dry run of leaving the source: nothing may come of it."""
    flow = chance.choice([name for name in world.flows if name not in ("P->Q", "Q->P")] or [""])
    if not flow:
        raise NotNow("no flow may be left")
    driver = world.drivers.leader(flow)
    quoted = urllib.parse.quote(flow, safe="")
    status, answer = driver.call("POST", f"/v1/flows/{quoted}:failover?dry_run=true", {})
    if status >= 500:
        raise NoAnswer(f"{status} {answer}")
    return {"flow": flow, "status": status}


def reload(world: World, chance: random.Random) -> Detail:
    """The file says something else, which acts while the mirror copies."""
    text = world.file.read_text()
    kept = [line for line in text.splitlines() if not line.startswith("slots.bytes.max")]
    bytes_max = chance.choice((64, 128, 256)) * 1024 * 1024
    beside = world.file.with_suffix(".new")
    beside.write_text("\n".join([*kept, f"slots.bytes.max = {bytes_max}"]) + "\n")
    beside.replace(world.file)
    if chance.random() < 0.5:
        for driver in world.drivers.answering():
            driver.run.send_signal(signal.SIGHUP)
    return {"slots.bytes.max": bytes_max}


def audit(world: World, chance: random.Random) -> Detail:
    """Both sides are compared while they change; it may find nothing that is not so."""
    flows = [name for name in world.flows if name == "A->B"]
    if not flows:
        raise NotNow("no flow without transforms")
    flow = chance.choice(flows)
    report = audited(world.file, flow_of(flow), AuditOptions())
    detail = {
        "flow": flow,
        "records": report.records,
        "problems": len(report.problems),
        "counts": {kind.value: count for kind, count in report.counts.items() if count},
    }
    wrong = {"missing", "repeated", "changed", "swapped"} & set(detail["counts"])  # type: ignore[call-overload]
    if wrong:
        world.complaints.append(
            f"audit of {flow}: {detail['counts']} "
            f"{[str(each) for each in report.findings if each.finding.kind.value in wrong][:3]}"
        )
    return detail


def drill(world: World, chance: random.Random) -> Detail:
    """A failover is rehearsed by the command; it may fail while everything is broken."""
    flows = [name for name in world.flows if name in ("A->B", "C->B")]
    if not flows:
        raise NotNow("no flow with groups")
    flow = chance.choice(flows)
    command = [sys.executable, "-m", "heliograph", "drill", str(world.file), "--flow", flow]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_DRILL_S_MAX, cwd=ROOT
        )
    except subprocess.TimeoutExpired as exc:
        raise TimeoutError(str(exc)) from exc
    if "Traceback" in done.stderr or done.returncode not in _DRILL_CODES:
        world.complaints.append(f"drill of {flow}: {done.returncode}: {done.stderr[-800:]}")
    return {"flow": flow, "code": done.returncode, "said": done.stderr[-200:]}


def _decide(
    world: World, chance: random.Random, verb: str, body: Mapping[str, Any]
) -> dict[str, object]:
    workload, topic = one_channel_topic(world, chance)
    channel = chance.choice(channels_of(workload, topic))
    flow = str(channel.flow)
    driver = world.drivers.leader(flow)
    quoted = urllib.parse.quote(flow, safe="")
    whole = {**body, "topics": [topic], "why": "the campaign"}
    status, answer = driver.call("POST", f"/v1/flows/{quoted}:{verb}", whole)
    if status >= 500:
        raise NoAnswer(f"{status} {answer}")
    return {"flow": flow, "topic": topic, "body": dict(body), "status": status}


KINDS: Final = (
    Kind(name="kill-leader", family="mirror", perform=kill_leader),
    Kind(name="kill-driver", family="mirror", perform=kill_any, weight=0.5),
    Kind(name="stop-leader", family="mirror", perform=stop_leader),
    Kind(name="freeze-driver", family="mirror", perform=freeze),
    Kind(name="kill-worker", family="mirror", perform=kill_worker, spark=True),
    Kind(name="freeze-worker", family="mirror", perform=freeze_worker, spark=True),
    Kind(name="pause", family="mirror", perform=pause),
    Kind(name="throttle", family="mirror", perform=throttle),
    Kind(name="move", family="mirror", perform=move),
    Kind(name="resume", family="mirror", perform=resume),
    Kind(name="preview-failover", family="mirror", perform=preview_failover),
    Kind(name="reload", family="mirror", perform=reload),
    Kind(name="drill", family="mirror", perform=drill, weight=0.3),
    Kind(name="audit", family="mirror", perform=audit, weight=0.5),
)
