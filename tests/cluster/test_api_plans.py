"""`If-Match` with the tag of a dry run: what is done is what was shown, or nothing."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import end_offsets, numbered, produce
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, mirror_runs
from tests.kit.topics import wait_until

_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


class _Api:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(
        self, method: str, path: str, body: Any = None, tag: str | None = None
    ) -> tuple[int, dict[str, Any], str]:
        """Status, body and ETag."""
        request = Request(self._url + path, method=method)
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps({} if body is None else body).encode()
        if tag is not None:
            request.add_header("If-Match", tag)
        try:
            with urlopen(request, timeout=60) as response:
                return response.status, json.load(response), response.headers["ETag"]
        except HTTPError as exc:
            return exc.code, json.load(exc), ""

    def shown(self, path: str, body: Any = None) -> str:
        """The tag of a dry run."""
        status, answer, tag = self("POST", f"{path}?dry_run=true", body)
        assert status == 200, answer
        return tag

    def done(self, path: str, body: Any, tag: str) -> dict[str, Any]:
        """An operation that is begun with this tag, once it is over."""
        status, found, _ = self("POST", path, body, tag)
        assert status == 202, found

        def is_over() -> bool:
            nonlocal found
            _, found, _ = self("GET", f"/v1/operations/{found['id']}")
            return bool(found["state"] != "running")

        wait_until(is_over, "the operation", timeout_s=60, poll_s=0.1)
        return found


def _commit(cluster: LocalCluster, group: str, topic: str) -> None:
    consumer = Consumer({**cluster.librdkafka_config, "group.id": group})
    consumer.commit(offsets=[ClientPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()


def test_what_changed_since_a_dry_run_stops_what_was_shown(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where a failback saves what only the old source has
    name = lasting_topic(pair["A"], topic("plans"))
    number = name.rpartition("-")[2]
    source, target = f"plA{number}", f"plB{number}"
    flow = {"topics": f"{name}.*", "groups": f"{name}.*", "replication.policy.class": _IDENTITY}
    back = {**flow, "emit.heartbeats.enabled": "false"}
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {f"{source}->{target}": flow, f"{target}->{source}": back},
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
    api = _Api(f"http://{listen}")
    at = f"/v1/flows/{source}-%3E{target}"
    failover, pause, reverse = f"{at}:failover", f"{at}:pause", f"{at}:reverse"
    pausing = {"topics": [f"{name}.*"], "for_s": 600}

    def topics() -> int:
        return int(api("GET", "/v1/topics")[1]["total"])

    def has_other_tag(path: str, body: Any, tag: str) -> None:
        wait_until(lambda: api.shown(path, body) != tag, "another plan", timeout_s=30, poll_s=0.2)

    produce(pair["A"], name, numbered(10))
    with mirror_runs() as runs:
        run = MirrorRun(file, tmp_path / "run.log", "--api", listen, program=WITHOUT_SPARK)
        runs.append(run)
        run.await_copying()
        wait_until(lambda: topics() == 1, "a topic", timeout_s=30, poll_s=0.1)

        # A topic that came in between.
        left, paused = api.shown(failover), api.shown(pause, pausing)
        produce(pair["A"], lasting_topic(pair["A"], f"{name}-b"), numbered(10))
        has_other_tag(failover, None, left)
        new_topic = api("POST", failover, {}, left), api("POST", pause, pausing, paused)
        # A group that came in between; records that come are none of the plan.
        left = api.shown(failover)
        produce(pair["A"], name, numbered(5))
        unchanged = api.shown(failover) == left
        _commit(pair["A"], f"{name}-readers", name)
        has_other_tag(failover, None, left)
        new_group = api("POST", failover, {}, left)
        # Another body than that of the dry run; a decision that came in between.
        paused, left = api.shown(pause, pausing), api.shown(failover)
        other_body = api("POST", pause, {**pausing, "why": "x", "topics": [name]}, paused)
        agreed = api("POST", pause, pausing, paused)
        decision = f"/v1/decisions/{agreed[1]['decision']['id']}"
        wait_until(
            lambda: api("GET", at)[1]["decisions"] != [], "a decision", timeout_s=10, poll_s=0.1
        )
        decided = api("POST", failover, {}, left)
        withdrawn = api("DELETE", decision, tag=api("DELETE", f"{decision}?dry_run=true")[2])
        wait_until(
            lambda: api("GET", at)[1]["decisions"] == [], "no decision", timeout_s=10, poll_s=0.1
        )
        operations = api("GET", "/v1/operations")[1]["operations"]
        leading = api("GET", at)[1]["state"]

        # One topic is promoted alone; the other is mirrored on.
        some, promote = {"topics": [f"{name}-b"]}, f"{at}:promote"
        promoted = api.done(promote, some, api.shown(promote, some))
        alone = api("GET", at)[1]
        ends = end_offsets(pair["B"], name)[0]
        produce(pair["A"], name, numbered(7))
        wait_until(lambda: end_offsets(pair["B"], name)[0] == ends + 7, "the other topic's records")

        gone = api.done(failover, {}, api.shown(failover))
        wait_until(
            lambda: api("GET", at)[1]["state"] == "fenced", "a fence", timeout_s=30, poll_s=0.1
        )
        # The way back: a topic that parted in between would be treated in another way.
        home = api.shown(reverse)
        produce(pair["A"], name, numbered(3))
        has_other_tag(reverse, None, home)
        parted = api("POST", reverse, {}, home)
        resync = {"resync": True, "may_delete": True}
        other_way = api("POST", f"{at}:restore", {"may_delete": True}, api.shown(reverse, resync))
        came_back = api.done(reverse, resync, api.shown(reverse, resync))
        run.stop()

    refused = [*new_topic, new_group, other_body, decided, parted, other_way]
    assert [(each[0], each[1]["code"]) for each in refused] == [(412, "changed_since")] * 7
    assert "not what the dry run showed" in new_topic[0][1]["message"]
    assert unchanged
    assert (agreed[0], withdrawn[0]) == (201, 200)
    # Nothing half done: no operation was begun, and the flow was led on.
    assert (operations, leading) == ([], "leading")
    assert [each["topic"] for each in promoted["result"]["topics"]] == some["topics"]
    assert [each["topic"] for each in alone["failed_over"]] == some["topics"]
    assert alone["state"] == "leading"
    assert (gone["state"], came_back["state"]) == ("done", "done"), (gone, came_back)
