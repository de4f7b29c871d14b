"""Make Spark start in half the time: its classes are recorded once and mapped from then on.

The whole suite starts Spark some forty times, and most of a start is the JVM loading classes. The
archive is the one that a mirror makes for itself (`heliograph.engine.class_archive`). So that it is
there before the first test, and for Spark on any master, it is named in the environment. So are the
compiled modules of the package, where the machine was told not to write them beside their sources.

Every Python process that tests start imports what an installed one would, and no hypothesis.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from heliograph.cache import cache_folder
from heliograph.engine.class_archive import OPTIONS_VARIABLE, archive_of, archive_options, record
from heliograph.engine.java import check_java
from heliograph_tools.localkafka.kafka import file_lock

LIGHT_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PATH: Final = "PYTHONPATH"
_AS_INSTALLED: Final = Path(__file__).parent / "as_installed"
_NOT_COMPILED: Final = "PYTHONDONTWRITEBYTECODE"
_TESTS: Final = Path(__file__).parents[1]
_WITH_SPARK: Final = tuple(_TESTS / name for name in ("cluster", "crash", "soak", "spark"))


def light_jvm() -> str:
    """Options for JVMs of Spark beside the driver's: they compile little and load no classes."""
    return f"{LIGHT_JVM} {os.environ.get(OPTIONS_VARIABLE, '')}".strip()


@pytest.fixture(scope="session", autouse=True)
def spark_starts_fast(request: pytest.FixtureRequest) -> Iterator[None]:
    """For every process of this session; nothing where no test needs Spark."""
    paths = [item.path for item in request.session.items]
    if not any(path.is_relative_to(folder) for path in paths for folder in _WITH_SPARK):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_PATH, str(_AS_INSTALLED), prepend=os.pathsep)
        if _NOT_COMPILED in os.environ:
            patch.delenv(_NOT_COMPILED)
            patch.setenv("PYTHONPYCACHEPREFIX", str(cache_folder() / "ready" / "compiled"))
        patch.setenv(OPTIONS_VARIABLE, _options())
        yield


def _options() -> str:
    archive = archive_of(check_java())
    assert archive is not None
    # Other workers of this session wait for it.
    with file_lock(archive.with_suffix(".tests")):
        if not archive.exists():
            record(archive)
    options = archive_options(archive)
    assert options, f"no {archive}: `python -m heliograph.engine.class_recording` says why"
    return options
