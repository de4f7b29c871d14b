"""Secured clusters: every mechanism on driver and executors, and no secret anywhere to be seen."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
import subprocess
import sys
import traceback
import types
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import LATEST, Cluster, open_cluster
from heliograph.clock import now_ms
from heliograph.config.clients import aiokafka_settings
from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.config.security import AwsSigning, OAuthConfig, SaslConfig, SecurityConfig
from heliograph.config.tls.oauth import issue_token
from heliograph.errors import BrokerError, BrokerUnreachable, MirrorError
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster, local_clusters
from tests.kit.leaks import (
    Secrets,
    leaks,
    leaks_in_arguments,
    leaks_in_environments,
    leaks_in_folder,
)
from tests.kit.mirror import Route
from tests.kit.records import numbered, produce
from tests.kit.runs import MirrorRun
from tests.kit.secured import (
    CLIENT_SECRETS,
    ENVIRONMENT_VARIABLE,
    FLOWS,
    RECORDS,
    free_port,
    properties,
    secrets,
    specs,
    word,
)
from tests.kit.tokens import TokenEndpoint, token_endpoint
from tests.kit.topics import create_topic, wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that one run has around it."""

    folder: Path
    clusters: Mapping[str, LocalCluster]
    """By alias of the configuration."""
    endpoint: TokenEndpoint
    config: Path
    secrets: Secrets
    ui: str
    run: MirrorRun

    def route(self, source: str) -> Route:
        target = FLOWS[source]
        return Route(
            config=self.config,
            flow=FlowId(source=ClusterAlias(source), target=ClusterAlias(target)),
            source=self.clusters[source],
            target=self.clusters[target],
        )

    @property
    def all_secrets(self) -> Secrets:
        """Those of the configuration, and the tokens that were handed out until now."""
        return {**self.secrets, **{f"token {n}": t for n, t in enumerate(self.endpoint.issued)}}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three clusters and one real run of three flows between them, on executors of their own."""
    folder = tmp_path_factory.mktemp("secured")
    jwks, temp = folder / "jwks.json", folder / "temp"
    temp.mkdir()
    with ExitStack() as stack:
        endpoint = stack.enter_context(token_endpoint(CLIENT_SECRETS, jwks))
        made = stack.enter_context(local_clusters(specs(jwks), root=folder / "clusters"))
        clusters = {
            "mutual": made["X"],
            "plain": made["P"],
            "unsigned": made["P"],
            "scram512": made["Y"],
            "scram256": made["Y"],
            "bearer": made["Y"],
        }
        for alias in FLOWS:
            create_topic(clusters[alias], f"orders-{alias}", partitions=2)
            produce(clusters[alias], f"orders-{alias}", numbered(RECORDS, partitions=2))
        ui_port = free_port()
        config = folder / "mm2.properties"
        config.write_text(properties(folder, clusters, endpoint, ui_port), encoding="utf-8")
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(ENVIRONMENT_VARIABLE, word("scram512", "producer"))
        patch.setenv("TMPDIR", str(temp))
        run = MirrorRun(config, folder / "run.log")
        stack.callback(run.kill)
        run.await_running()
        yield Scene(
            folder=folder,
            clusters=clusters,
            endpoint=endpoint,
            config=config,
            secrets=secrets(made["X"]),
            ui=f"http://127.0.0.1:{ui_port}",
            run=run,
        )


# -- every mechanism works


@pytest.mark.parametrize("source", list(FLOWS))
def test_records_cross_between_secured_clusters_unchanged(scene: Scene, source: str) -> None:
    route = scene.route(source)

    assert route.assert_arrives(f"orders-{source}") == RECORDS


def test_checkpoints_and_syncs_are_written_with_the_roles_own_credentials(scene: Scene) -> None:
    wanted = {
        "mutual": "mm2-offset-syncs.scram512.internal",
        "plain": "mm2-offset-syncs.scram256.internal",
        "unsigned": "mm2-offset-syncs.bearer.internal",
        "scram512": "mutual.checkpoints.internal",
        "scram256": "plain.checkpoints.internal",
        "bearer": "unsigned.checkpoints.internal",
    }
    config = load_config(scene.config)
    admins = {alias: ClusterAdmin(config.clusters[ClusterAlias(alias)]) for alias in wanted}

    for alias, topic in wanted.items():
        wait_until(
            lambda alias=alias, topic=topic: topic in admins[alias].topic_names(),  # type: ignore[misc]
            f"{topic} on {alias}",
        )

    assert not [line for line in scene.run.said.splitlines() if " ERROR " in line]


# -- no secret shows itself


def test_arguments_and_environments_of_all_processes_hold_no_secret(scene: Scene) -> None:
    driver, *children = scene.run.family()
    from_outside = {
        what: text
        for what, text in scene.all_secrets.items()
        if text != word("scram512", "producer")
    }

    assert len(children) >= 4  # the JVM, an executor, its daemon, workers
    assert leaks_in_arguments([driver, *children], scene.all_secrets) == []
    assert leaks_in_environments(children, scene.all_secrets) == []
    assert leaks_in_environments([driver], from_outside) == []


def test_sparks_pages_and_its_interface_show_no_secret(scene: Scene) -> None:
    applications = json.loads(fetched(f"{scene.ui}/api/v1/applications"))
    api = f"{scene.ui}/api/v1/applications/{applications[0]['id']}"
    pages = [f"{scene.ui}/{page}/" for page in ("environment", "jobs", "stages", "executors")]
    pages += [f"{api}/{part}" for part in ("environment", "jobs", "stages", "allexecutors")]

    shown = {page: fetched(page) for page in pages}

    assert {page: leaks(text, scene.all_secrets) for page, text in shown.items()} == {
        page: [] for page in pages
    }
    environment = json.loads(shown[f"{api}/environment"])
    settings = dict(environment["sparkProperties"])
    assert "spark.ssl.keyPassword" in settings
    # Slots' orders are blocks to Spark, and blocks may go to disk.
    assert settings["spark.io.encryption.enabled"] == "true"


def test_what_is_on_disk_while_it_runs_holds_no_secret(scene: Scene) -> None:
    scratch, work = scratch_of(scene.run), work_folder_of(scene.run)

    found = leaks_in_folder(scratch, scene.all_secrets) + leaks_in_folder(work, scene.all_secrets)

    assert found == []
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    assert (scratch / "spark.log").is_file()
    assert (work / "stderr").is_file()


def test_a_token_signed_for_amazon_is_shown_by_both_client_libraries(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker takes a bearer token; who signed it is played."""

    def sign(region: str) -> tuple[str, int]:
        assert region == "eu-west-1"
        token = issue_token(OAuthConfig(subject="mirror"))
        return token.text, now_ms() + 900_000

    cluster = signed_by(sign, scene, monkeypatch)
    orders = TopicPartition(topic=TopicName("orders-plain"), partition=0)

    assert orders.topic in ClusterAdmin(cluster).topic_names()
    assert asyncio.run(end_of(cluster, orders)) == RECORDS // 2


def test_a_token_that_cannot_be_signed_is_said_by_both_client_libraries(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sign(region: str) -> tuple[str, int]:
        raise LookupError(f"no credentials for {region}")

    cluster = signed_by(sign, scene, monkeypatch)
    orders = TopicPartition(topic=TopicName("orders-plain"), partition=0)
    said = "cluster msk.*no token could be signed for AWS_MSK_IAM: LookupError: no credentials for"

    with pytest.raises(BrokerUnreachable, match=said):
        ClusterAdmin(cluster)
    with pytest.raises(BrokerUnreachable, match=said):
        asyncio.run(end_of(cluster, orders))


def signed_by(
    sign: Callable[[str], tuple[str, int]], scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> ClusterConfig:
    """The cluster that takes any bearer token, as one of Amazon's."""
    played = types.SimpleNamespace(
        MSKAuthTokenProvider=types.SimpleNamespace(generate_auth_token=sign)
    )
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", played)
    oauth = OAuthConfig(aws=AwsSigning(region="eu-west-1"))
    return ClusterConfig(
        alias=ClusterAlias("msk"),
        bootstrap_servers=(scene.clusters["unsigned"].bootstrap,),
        security=SecurityConfig(
            protocol="SASL_PLAINTEXT", sasl=SaslConfig(mechanism="OAUTHBEARER", oauth=oauth)
        ),
    )


async def end_of(cluster: ClusterConfig, at: TopicPartition) -> int | BrokerError:
    opened = open_cluster(cluster, "consumer")
    try:
        await opened.refresh([at.topic])
        return (await opened.list_offsets([at], LATEST))[at]
    finally:
        opened.close()


@pytest.mark.parametrize("command", [["status", "--json", "--lanes"], ["config"], ["plan"]])
def test_commands_show_no_secret(scene: Scene, command: list[str]) -> None:
    name, *options = command
    answer = subprocess.run(
        [sys.executable, "-m", "heliograph", name, str(scene.config), *options],
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert answer.returncode == 0, answer.stderr.decode()
    assert leaks(answer.stdout + answer.stderr, scene.all_secrets) == []
    assert b"scram512" in answer.stdout


def test_loaded_configuration_masks_its_secrets(scene: Scene) -> None:
    config = load_config(scene.config)

    dumps = [cluster.model_dump_json() for cluster in config.clusters.values()]
    shown = f"{config!r} {config} {dumps}"

    assert leaks(shown.encode(), scene.all_secrets) == []


# -- refused credentials


WRONG: Final = {
    "plain": {
        word("plain", "admin"): "wrong-plain-0Hq",
        word("plain", "consumer"): "wrong-plain-0Hq",
    },
    "scram512": {word("scram512", "consumer"): "wrong-scram-7Jd"},
    "scram256": {
        word("scram256", "admin"): "wrong-scram-7Jd",
        word("scram256", "consumer"): "wrong-scram-7Jd",
    },
    "bearer": dict.fromkeys(CLIENT_SECRETS.values(), "wrong-secret-5Kp"),
}


@pytest.mark.parametrize("alias", ["plain", "scram256", "bearer"])
def test_refused_credentials_are_told_without_them(scene: Scene, alias: str) -> None:
    config = with_wrong_words(scene, alias)
    cluster = config.clusters[ClusterAlias(alias)]
    secrets = {**scene.all_secrets, **{w: w for w in WRONG[alias].values()}}

    told = [told_by_librdkafka(cluster), told_by_aiokafka(cluster)]

    assert all("refused" in text for text in told), told
    assert leaks("\n".join(told).encode(), secrets) == []


def test_a_client_without_tls_is_told_that_the_listener_expects_it(scene: Scene) -> None:
    """A broker closes such a connection and says nothing."""
    cluster = load_config(scene.config).clusters[ClusterAlias("scram512")]
    bare = cluster.model_copy(update={"security": SecurityConfig(), "role_security": {}})

    told = [told_by_librdkafka(bare), told_by_aiokafka(bare)]

    wanted = (
        "expects TLS, but security.protocol is PLAINTEXT: scram512.security.protocol must be SSL"
    )
    assert all(wanted in text for text in told), told


def with_wrong_words(scene: Scene, alias: str) -> MirrorConfig:
    text = scene.config.read_text()
    for right, wrong in WRONG[alias].items():
        text = text.replace(right, wrong)
    path = scene.folder / f"wrong-{alias}.properties"
    path.write_text(text)
    return load_config(path)


def told_by_librdkafka(cluster: ClusterConfig) -> str:
    with pytest.raises(MirrorError) as told:
        ClusterAdmin(cluster, timeout_s=10).describe()
    return "".join(traceback.format_exception(told.value))


def told_by_aiokafka(cluster: ClusterConfig) -> str:
    async def look() -> None:
        opened = Cluster(
            cluster.alias, cluster.bootstrap_servers, aiokafka_settings(cluster, "consumer")
        )
        await opened.refresh([])

    with pytest.raises(MirrorError) as told:
        asyncio.run(look())
    return "".join(traceback.format_exception(told.value))


# -- afterwards


@pytest.fixture(scope="module")
def ended(scene: Scene) -> Iterator[tuple[Scene, Path]]:
    """The run told to end, and the folder its executor worked in."""
    work = work_folder_of(scene.run)
    assert scene.run.stop() == 0
    yield scene, work
    # Spark's own worker keeps it beside its installation.
    shutil.rmtree(work.parent, ignore_errors=True)


def test_logs_and_the_event_log_hold_no_secret(ended: tuple[Scene, Path]) -> None:
    scene, work = ended

    assert leaks(scene.run.said.encode(), scene.all_secrets) == []
    assert leaks_in_folder(work, scene.all_secrets) == []
    assert leaks_in_folder(scene.folder / "events", scene.all_secrets) == []
    assert any(path.stat().st_size for path in (scene.folder / "events").rglob("events_*"))


def test_nothing_is_left_in_the_temporary_folder(ended: tuple[Scene, Path]) -> None:
    scene, _ = ended

    left = [path.name for path in (scene.folder / "temp").iterdir()]

    assert [name for name in left if name.startswith(("heliograph", "tmp"))] == []
    assert leaks_in_folder(scene.folder / "temp", scene.all_secrets) == []


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        content: bytes = answer.read()
        return content


def scratch_of(run: MirrorRun) -> Path:
    """Where the driver's Spark keeps its files: its words go to a file in there."""
    jvm = next(child for child in run.family() if "java" in child.name())
    return Path(f"/proc/{jvm.pid}/fd/2").readlink().parent


def work_folder_of(run: MirrorRun) -> Path:
    """The folder of the one executor, with its logs."""
    return next(Path(child.cwd()) for child in run.family() if _is_executor(child))


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False
