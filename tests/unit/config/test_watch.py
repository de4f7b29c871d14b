"""Files that are another than when they were read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.config.watch import FileWatch
from heliograph.errors import ConfigError
from tests.unit.config.texts import TWO_CLUSTERS

JAAS = (
    "jaas = org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="%s";\n'
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "mm2.properties"
    found.write_text(TWO_CLUSTERS)
    return found


def watch_of(file: Path) -> FileWatch[MirrorConfig]:
    return FileWatch(lambda around: load_config(file, around))


def in_place(file: Path) -> None:
    file.write_text(TWO_CLUSTERS + "A->B.topics = x\n")


def renamed(file: Path) -> None:
    """As editors do it; the time and the size are those of before."""
    before = file.stat()
    other = file.with_suffix(".tmp")
    other.write_text(TWO_CLUSTERS.replace("a1:", "a3:"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


@pytest.mark.parametrize("change", [in_place, renamed])
def test_a_file_with_other_contents_is_changed_until_it_is_read(
    file: Path, change: Callable[[Path], None]
) -> None:
    watch = watch_of(file)
    watch.load()
    before = watch.is_changed()

    change(file)
    after = watch.is_changed()
    watch.load()

    assert (before, after, watch.is_changed()) == (False, True, False)


def test_a_file_that_was_only_touched_is_not_changed(file: Path) -> None:
    watch = watch_of(file)
    watch.load()

    os.utime(file, ns=(1, 1))

    assert not watch.is_changed()


def test_a_link_that_is_swapped_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes mounts a ConfigMap: the file is a link through a folder that is one too."""
    for name, text in (("one", TWO_CLUSTERS), ("two", TWO_CLUSTERS + "topics = x\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mm2.properties").write_text(text)
    (tmp_path / "..data").symlink_to("one")
    file = tmp_path / "mm2.properties"
    file.symlink_to("..data/mm2.properties")
    watch = watch_of(file)
    first = watch.load()

    (tmp_path / "..tmp").symlink_to("two")
    (tmp_path / "..tmp").replace(tmp_path / "..data")

    assert watch.is_changed()
    assert (first.flows[0].topics, watch.load().flows[0].topics) == ((".*",), ("x",))


def test_files_that_the_file_names_are_watched_too(file: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(JAAS % "old")
    trusted = tmp_path / "ca.pem"
    trusted.write_text("no certificate")
    file.write_text(
        TWO_CLUSTERS
        + "config.providers = file\n"
        + "config.providers.file.class = "
        + "org.apache.kafka.common.config.provider.FileConfigProvider\n"
        + "A.security.protocol = SASL_PLAINTEXT\nA.sasl.mechanism = PLAIN\n"
        + f"A.sasl.jaas.config = ${{file:{secrets}:jaas}}\n"
    )
    watch = watch_of(file)
    watch.load()

    secrets.write_text(JAAS % "new")

    assert watch.is_changed()
    password = watch.load().clusters[watch.load().flows[0].id.source].security.sasl.password
    assert password is not None
    assert password.reveal() == "new"


def test_a_file_that_mends_another_is_watched_though_nothing_could_be_loaded(
    file: Path, tmp_path: Path
) -> None:
    store = tmp_path / "ca.pem"
    watch = watch_of(file)
    watch.load()
    file.write_text(
        TWO_CLUSTERS + f"A.security.protocol = SSL\nA.ssl.truststore.location = {store}\n"
    )
    with pytest.raises(ConfigError):
        watch.load()
    still = watch.is_changed()

    store.write_text("something")

    assert (still, watch.is_changed()) == (False, True)


def test_a_file_that_is_gone_is_a_change_and_so_is_its_return(file: Path) -> None:
    watch = watch_of(file)
    watch.load()

    file.unlink()
    gone = watch.is_changed()
    with pytest.raises(ConfigError, match="No such file"):
        watch.load()
    calm = watch.is_changed()
    file.write_text(TWO_CLUSTERS)

    assert (gone, calm, watch.is_changed()) == (True, False, True)
