"""The options of MirrorMaker 1 as they are typed; what they come to is in config/test_mm1.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from heliograph.cli import mirror_maker
from heliograph.cli.app import app
from heliograph.cli.run import Running
from heliograph.config.load import load_config
from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias, FlowId, LaneId, LaneProgress, Stalled, StallReason
from tests.unit.api.pretend import at

FLOW = FlowId(source=ClusterAlias("source"), target=ClusterAlias("target"))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "c.properties").write_text("bootstrap.servers=a:1\ngroup.id=mirror\n")
    (tmp_path / "p.properties").write_text("bootstrap.servers=b:1\n")
    consumer, producer = tmp_path / "c.properties", tmp_path / "p.properties"
    return ["--consumer.config", str(consumer), "--producer.config", str(producer)]


def told(*words: str) -> Result:
    return CliRunner().invoke(app("mirror-maker", "run"), ["mirror-maker", *words])


def test_every_option_of_its_time_is_taken(files: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mirror.properties"

    done = told(
        *files,
        *("--whitelist", "orders.*", "--num.streams", "4", "--new.consumer", "--new.producer"),
        *("--num.producers", "2", "--queue.size", "10", "--abort.on.send.failure", "FALSE"),
        *("--offset.commit.interval.ms", "60000", "--rebalance.listener", "a.B"),
        *("--rebalance.listener.args", "x", "--message.handler"),
        *("tests.unit.transform.functions:Handler", "--message.handler.args", "7"),
        *("--to-file", str(file)),
    )

    assert done.exit_code == 0, done.output
    for option in ("--new.consumer", "--new.producer", "--num.producers", "--queue.size"):
        assert f"{option}: does nothing here" in done.stderr
    for option in ("--consumer.rebalance.listener", "--rebalance.listener.args"):
        assert f"{option}: does nothing here" in done.stderr
    flow = load_config(file).flow(FLOW)
    assert (flow.topics, flow.tasks_max, len(flow.transforms)) == (("orders.*",), 4, 1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--include", "a", "--abort.on.send.failure", "maybe"], "not true or false"),
        (["--include", "a", "--num.streams", "0"], "--num.streams"),
        (["--include", "a", "--pid-file", "x"], "need -daemon"),
    ],
)
def test_a_wrong_value_is_refused_as_usage(
    files: list[str], words: list[str], sentence: str
) -> None:
    done = told(*files, *words)

    assert done.exit_code == 2
    assert sentence in done.stderr.replace("\n", " ")


def test_a_config_file_that_is_missing_from_the_line_is_named(files: list[str]) -> None:
    done = told(*files[:2], "--include", "a")

    assert done.exit_code == 2
    assert "--producer.config" in done.stderr


def test_without_topics_nothing_runs(files: list[str]) -> None:
    with pytest.raises(ConfigError, match="an include list must be specified"):
        CliRunner().invoke(
            app("mirror-maker", "run"), ["mirror-maker", *files], catch_exceptions=False
        )


def test_it_runs_in_the_background_beside_the_consumer_config(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Running] = []

    def keep_running(_: object, how: Running) -> int:
        seen.append(how)
        return 0

    monkeypatch.setattr(mirror_maker, "keep_running", keep_running)

    assert told(*files, "--include", "a", "-daemon").exit_code == 0
    assert told(*files, "--include", "a", "--abort.on.send.failure", "false").exit_code == 0

    refused = Stalled(reason=StallReason.REFUSED_BY_TARGET, detail="", since_ms=1, retrying=True)
    unreachable = Stalled(reason=StallReason.SOURCE_UNREACHABLE, detail="", since_ms=1)
    assert seen[0].background == (Path(f"{files[1]}.pid"), Path(f"{files[1]}.log"))
    assert (seen[0].until(lanes(refused)), seen[0].until(lanes(unreachable))) == (True, False)
    assert not seen[1].until(lanes(refused))


def lanes(state: Stalled) -> dict[LaneId, LaneProgress]:
    return {at(0).lane: at(0), at(1).lane: replace(at(1), state=state)}
