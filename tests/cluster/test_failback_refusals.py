"""What a failback refuses, and what a driver waits for, before anything is changed."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heliograph.cli.app import app
from heliograph.errors import ConfigError, MirrorError, RecoveryRefused
from heliograph.failback.command import abandon, fail_back
from heliograph.failback.divergence import Choice
from heliograph.failback.outputs import EXPORT
from heliograph.procedure.runner import StepEvent
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.failback import (
    IDENTITY,
    PRESERVE,
    only,
    open_stage,
    run_failback,
)
from tests.kit.leasing import LeasesAside
from tests.kit.mirror import lasting_topic
from tests.kit.records import (
    numbered,
    open_transaction,
    produce,
)
from tests.kit.topics import wait_until


def test_a_driver_does_not_begin_the_way_back_before_a_failback_has(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """It would copy everything behind what is there already."""
    name = lasting_topic(pair["A"], topic("early"))
    stage = open_stage(pair, name, tmp_path, name)
    produce(pair["A"], name, numbered(10))
    stage.mirror(stage.there, lanes=1)
    stage.fence(stage.there)

    with closing(LeasesAside(stage.config, lease_s=1.0)) as leases:
        leases.start()
        leases.wait_known(10)
        fence = leases.fence(stage.back)
        stage.fail_back()
        wait_until(lambda: leases.leads(stage.back), "a lease of the way back")

    assert fence is not None
    assert f"`heliograph failback --flow '{stage.there}'` begins this flow" in fence.why
    assert not leases.leads(stage.there)


def test_what_stands_in_the_way_is_a_sentence_and_changes_nothing(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("refused"))
    stage = open_stage(pair, name, tmp_path, name)
    with pytest.raises(MirrorError, match=r"no ledger of .*nothing was mirrored yet"):
        stage.fail_back()
    produce(pair["A"], name, numbered(10))
    stage.mirror(stage.there, lanes=1)
    with pytest.raises(RecoveryRefused, match=r"was not failed over"):
        stage.fail_back()
    stage.fence(stage.there)
    produce(pair["A"], name, numbered(5, start=10))
    alone = tmp_path / "alone.properties"
    text = stage.file.read_text()
    alone.write_text(text.replace(f"{stage.back}.enabled = true", ""))
    renaming = tmp_path / "renaming.properties"
    policy = f"{stage.back}.replication.policy.class = {IDENTITY['replication.policy.class']}"
    renaming.write_text(text.replace(policy, policy.replace("Identity", "Default")))

    for file, why in (
        (alone, rf"add `{stage.back}.enabled = true`"),
        (renaming, rf"would call {name} .*give it the replication.policy.class"),
    ):
        told = CliRunner().invoke(app(), ["failback", str(file), "--flow", str(stage.there)])
        with pytest.raises(ConfigError, match=why):
            raise told.exception or AssertionError(told.output)
    with (
        open_transaction(pair["A"], name, numbered(1), transactional_id=f"open-{name}"),
        pytest.raises(MirrorError, match=r"a transaction is open on"),
    ):
        stage.fail_back(Choice.RESYNC)
    both = CliRunner().invoke(
        app(), ["failback", str(stage.file), "--flow", str(stage.there), "--resync", "--wipe"]
    )
    assert both.exit_code == 2
    with pytest.raises(RecoveryRefused, match=r"has no unfinished failback"):
        asyncio.run(abandon(stage.config, stage.there))
    assert not stage.has_ledger(stage.back)


def test_a_topic_that_somebody_still_writes_to_is_not_deleted(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
) -> None:
    name = lasting_topic(pair["A"], topic("written"))
    stage = open_stage(pair, name, tmp_path, name, PRESERVE)
    produce(pair["A"], name, numbered(10))
    stage.mirror(stage.there, lanes=1)
    stage.fence(stage.there)
    produce(pair["A"], name, numbered(5, start=10))
    order = stage.order(Choice.RESYNC, may_delete=True)

    def write_late(event: StepEvent) -> None:
        if (event.step, event.what) == ("clear", "begins"):
            produce(pair["A"], name, numbered(3, start=15))

    with pytest.raises(RecoveryRefused, match=r"is still written to"):
        asyncio.run(fail_back(stage.config, order, write_late))
    told = asyncio.run(abandon(stage.config, stage.there))

    assert [record.key for record in only(pair["A"], name)] == [r.key for r in numbered(18)]
    assert "5 records saved by it stay" in told
    again = run_failback(stage.config, order)
    exported = again.procedure.output(EXPORT)
    assert exported is not None
    assert exported.records == 8
