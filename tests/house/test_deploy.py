"""What is under `deploy` agrees with the program: flags, routes, exit codes, versions, files."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
import trustme
import typer.main
import yaml

from heliograph import __version__
from heliograph.api import reading
from heliograph.cli.app import app
from heliograph.cli.output import EXIT_USAGE
from heliograph.config.load import parse_explained
from heliograph.config.secrets import Environment

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CONTAINERFILE = (DEPLOY / "container/Containerfile").read_text()
RESOURCES = {
    (path.name, resource["kind"]): resource
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for resource in yaml.safe_load_all(path.read_text())
}
MIRROR: Any = RESOURCES["mirror.yaml", "Deployment"]["spec"]["template"]["spec"]
KUBEFLOW: Any = RESOURCES["spark-operator.yaml", "SparkApplication"]["spec"]
APACHE: Any = RESOURCES["apache-spark-operator.yaml", "SparkApplication"]["spec"]
ROUTES = {getattr(route, "path", "") for route in reading.routes.routes}
RUN: Any = typer.main.get_command(app("run"))


def assert_runs(words: list[str]) -> None:
    """As a command line of Heliograph: parsed, not run."""
    assert words[0] == "run"
    command = RUN.commands["run"] if hasattr(RUN, "commands") else RUN
    context = command.make_context("run", words[1:], resilient_parsing=False)
    assert context.params["quiet"] is True
    context.close()


def probed(command: list[str]) -> str:
    (path,) = re.findall(r"http://127\.0\.0\.1:8080(/\w+)", command[-1])
    compile(command[-1], "probe", "exec")
    return str(path)


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters="=")
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(path.read_text())
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: str(path.name))
def test_a_unit_starts_a_mirror_and_starts_it_again(path: Path) -> None:
    service = unit(path)["Service"]

    assert_runs(shlex.split(service["ExecStart"])[1:])
    assert (service["Type"], service["Restart"]) == ("notify", "always")
    assert service["RestartPreventExitStatus"] == str(EXIT_USAGE)
    # Signals to the JVM would end the slots before they have settled.
    assert service["KillMode"] == "mixed"
    assert int(service["WatchdogSec"]) > 60


def test_the_units_differ_in_their_file_alone() -> None:
    one, several = (dict(unit(path)["Service"]) for path in UNITS)

    assert one.pop("ExecStart").replace("mm2", "%i") == several.pop("ExecStart")
    assert one == several


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    """Where systemd is: its own check, and how much the service could do to the machine."""
    tool = shutil.which("systemd-analyze")
    for path in UNITS if tool else ():
        copied = tmp_path / path.name
        copied.write_text(re.sub(r"(?m)^(ExecStart=)\S+", r"\1/bin/true", path.read_text()))
        command = [str(tool), "verify", "--man=no", str(copied)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")
    assert [path.name for path in UNITS] == ["heliograph.service", "heliograph@.service"]


def instructions() -> Iterator[tuple[str, str]]:
    text = re.sub(r"(?m)^\s*#.*\n", "", CONTAINERFILE).replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, " ".join(rest.split())


def test_the_image_runs_as_spark_does_and_holds_no_secret() -> None:
    found = list(instructions())

    words = [word for word, _ in found]
    assert set(words) <= {
        *(
            "ARG",
            "FROM",
            "WORKDIR",
            "COPY",
            "RUN",
            "ENV",
            "USER",
            "HEALTHCHECK",
            "ENTRYPOINT",
            "CMD",
        )
    }
    assert [rest for word, rest in found if word == "USER"] == ["185", "185"]
    for word, rest in found:
        if word in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(part, str) for part in json.loads(rest))
        if word in ("ARG", "ENV"):
            assert not re.search(r"(?i)passw|secret|token|credential", rest)


def test_the_image_starts_a_mirror_and_asks_how_it_is() -> None:
    found = dict(instructions())

    assert_runs(json.loads(found["CMD"]))
    assert probed(json.loads(found["HEALTHCHECK"].partition("CMD ")[2])) in ROUTES


def test_the_image_is_built_from_files_that_its_context_has() -> None:
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }

    assert copied == allowed
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_deployment_starts_a_mirror_whose_probes_are_routes() -> None:
    (container,) = MIRROR["containers"]

    assert_runs(container["args"])
    probes = {
        name: probed(container[name]["exec"]["command"])
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert set(probes.values()) <= ROUTES
    assert probes["readinessProbe"] == "/ready"
    assert container["image"] == f"heliograph:{__version__}"


def test_both_operators_submit_the_same_mirror() -> None:
    assert_runs(KUBEFLOW["arguments"])
    assert KUBEFLOW["arguments"] == APACHE["driverArgs"]
    assert KUBEFLOW["mainApplicationFile"] == APACHE["pyFiles"]
    assert KUBEFLOW["image"] == APACHE["sparkConf"]["spark.kubernetes.container.image"]
    assert KUBEFLOW["image"] == f"heliograph-spark:{__version__}"
    assert KUBEFLOW["sparkVersion"] == APACHE["runtimeVersions"]["sparkVersion"]
    assert KUBEFLOW["sparkVersion"] == pyspark.__version__


def pods() -> Iterator[tuple[Any, Any, list[Any]]]:
    """Of every pod its security context, its container and its volumes."""
    yield MIRROR["securityContext"], MIRROR["containers"][0], MIRROR["volumes"]
    for role in ("driver", "executor"):
        yield KUBEFLOW[role]["securityContext"], KUBEFLOW[role], KUBEFLOW["volumes"]
        spec = APACHE[f"{role}Spec"]["podTemplateSpec"]["spec"]
        yield spec["securityContext"], spec["containers"][0], spec["volumes"]


def test_every_pod_runs_as_spark_does_on_a_root_it_cannot_write() -> None:
    for pod, container, volumes in pods():
        inner = container["securityContext"]
        assert (pod["runAsUser"], pod["runAsGroup"], pod["runAsNonRoot"]) == (185, 185, True)
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert inner["readOnlyRootFilesystem"] is True
        assert inner["allowPrivilegeEscalation"] is False
        assert inner["capabilities"] == {"drop": ["ALL"]}
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounted["scratch"] == "/tmp"
        assert set(mounted) <= {volume["name"] for volume in volumes}


def test_the_file_of_the_manifests_loads_with_the_secrets_they_mount() -> None:
    held = RESOURCES["mirror.yaml", "ConfigMap"]["data"]["mm2.properties"]
    (folder,) = (
        mount["mountPath"]
        for mount in MIRROR["containers"][0]["volumeMounts"]
        if mount["name"] == "secrets"
    )
    files = {
        f"{folder}/ca.crt": trustme.CA().cert_pem.bytes(),
        f"{folder}/a.password": b"one",
        f"{folder}/b.password": b"two",
    }
    around = Environment(environment={}, read_bytes=lambda path: files[str(path)])

    config = parse_explained(held, source="mm2.properties", around=around).config

    assert [str(flow.id) for flow in config.flows] == ["A->B"]
    assert config.engine.master is None
    passwords = [cluster.security.sasl.password for cluster in config.clusters.values()]
    assert [each.reveal() for each in passwords if each is not None] == ["one", "two"]
