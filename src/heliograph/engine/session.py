"""Starts Spark: quiet, local where it can be, the package on every executor. Runs on the driver."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Final

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

import heliograph
from heliograph.config.schema import ClusterConfig, EngineConfig
from heliograph.config.secrets import Secret, is_secret_key
from heliograph.config.sections import Section
from heliograph.engine.class_archive import archive_of, archive_options, record_later
from heliograph.engine.java import check_java
from heliograph.engine.master import (
    executors_watched,
    register_in_time,
    require_answer,
)
from heliograph.engine.probe import REQUIRED, missing_imports
from heliograph.engine.whole_cores import booking, master_for, warning
from heliograph.errors import EngineError
from heliograph.model import ClusterAlias

_log: Final = logging.getLogger(__name__)
_TASK_FAILURES_MAX: Final = 1_000_000
"""A slot is replaced for as long as the mirror runs, so Spark must never give its job up."""
_JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
_SMALL_JVM: Final = "-XX:+UseSerialGC"
_LIGHT_JVM: Final = f"-XX:TieredStopAtLevel=1 {_SMALL_JVM}"
"""The JVM carries no records, so it need not compile well: half the CPU of its start is saved."""
_LOCAL: Final = re.compile(r"local(?:\[\s*(\d+|\*)\s*\])?$")
_REASON: Final = re.compile(
    r"(?:Unrecognized VM option|(?:Exception|Error): (?!An error occurred)).+"
)
"""Where a line of Java's says what is wrong, behind the class's name if there is one."""
_UNANSWERED: Final = ("masters are unresponsive", "stopped SparkContext")
_PASSED_BY_SPARK_SUBMIT: Final = "PYSPARK_GATEWAY_PORT"
_LEFT_TO_SPARK_SUBMIT: Final = frozenset(
    {"spark.app.name", "spark.ui.enabled", "spark.ui.showConsoleProgress"}
)
"""What nothing depends on: who submits may decide otherwise."""
_ORDER_BYTES_MAX: Final = 2**31 - 1
_ENCRYPTING: Final = (
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    "spark.authenticate.enableSaslEncryption",
)


def start_session(
    engine: EngineConfig,
    *,
    clusters: Mapping[ClusterAlias, ClusterConfig] | None = None,
    secret_variables: Collection[str] = (),
    say: Callable[[str], None] | None = None,
    has_queries: bool = False,
    tries: int = _TASK_FAILURES_MAX,
) -> SparkContext:
    """Spark as `engine` wants it; `say` hears what is being done. Raises `EngineError`.

    A context, not a `SparkSession`: to load Spark SQL takes a JVM a second, and slots need none.
    `clusters` are those whose credentials slots will be given. `secret_variables` are not in the
    environment of the processes started here. With `has_queries` the JVM carries rows, and may
    take its time to compile well. A task is tried as often as `tries` says, as a slot's must be
    for ever.
    """
    tell = say or (lambda _: None)
    if SparkContext._active_spark_context is not None:
        raise EngineError("a Spark session is already running in this process")
    java = check_java()
    archive = archive_of(java) if _has_own_jvm(engine) else None
    scratch = Path(tempfile.mkdtemp(prefix="heliograph-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    has_secrets = any(_holds_secrets(cluster) for cluster in (clusters or {}).values())
    conf = _conf(
        engine,
        scratch,
        _submitted(),
        has_secrets=has_secrets,
        archive=archive,
        has_queries=has_queries,
        tries=tries,
    )
    master = conf.get("spark.master", "") or ""
    require_answer(master)
    _set_environment(engine, master)
    tell("starting Spark")
    heard = signal.getsignal(signal.SIGINT)
    log = scratch / "spark.log"
    try:
        with _environment_without(secret_variables):
            context = _start_context(conf, log, archive)
        if threading.current_thread() is threading.main_thread():
            # SparkContext takes Ctrl-C for itself and cancels all jobs: what should drain would
            # die.
            signal.signal(signal.SIGINT, heard)
        _prepare(context, engine, scratch, tell, has_secrets=has_secrets)
    except EngineError:
        forget_session()
        raise
    except (Py4JError, PySparkException, OSError, AttributeError) as exc:
        # AttributeError: a context that stopped by itself has no JVM behind its attributes.
        forget_session()
        raise EngineError(f"Spark did not start on {master}: {_why(log, exc)}") from exc
    if archive is not None:
        record_later(archive)
    return context


def _prepare(
    context: SparkContext,
    engine: EngineConfig,
    scratch: Path,
    tell: Callable[[str], None],
    *,
    has_secrets: bool,
) -> None:
    context.setLogLevel(engine.spark.get("spark.log.level", "ERROR"))
    # A JVM that ends cuts the connection; by default that is a traceback on stderr.
    context._accumulatorServer.handle_error = _log_cut
    if has_secrets and not is_local(context.master) and not _encrypts(context.getConf()):
        _log.warning(
            "credentials of the clusters go to the executors unencrypted; "
            "spark.authenticate and spark.network.crypto.enabled change that"
        )
    if not _shares_this_interpreter(context.master):
        tell("sending the package to the executors")
        context.addPyFile(str(_pack(scratch)))
        with executors_watched(context):
            verify_executors(context)


def _log_cut(request: object, address: object) -> None:
    _log.debug("the connection of Spark's accumulators at %s was cut", address)


def stop_session(context: SparkContext) -> None:
    """End Spark; whatever state it is in."""
    try:
        context.stop()
    except (Py4JError, PySparkException, OSError, AttributeError) as exc:
        _log.debug("Spark did not stop in order: %s", _telling_line(exc))
        forget_session()


def forget_session() -> None:
    """Let another session be started in this process: the JVM of the one before is gone, or ends
    with this."""
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context._jsc = None  # nothing is left to be stopped over there
        context.stop()
    if gateway is not None and _PASSED_BY_SPARK_SUBMIT not in os.environ:
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.kill()
            process.wait()
        try:
            gateway.close()
        except (Py4JError, OSError) as exc:
            _log.debug("connections to a JVM that ended: %s", exc)
        SparkContext._gateway = SparkContext._jvm = None


def is_startable() -> bool:
    """Whether this process may start Spark anew: not the one that spark-submit has started."""
    return _PASSED_BY_SPARK_SUBMIT not in os.environ


def is_local(master: str) -> bool:
    """Whether every process of this master runs on this machine, so that loopback is enough."""
    return master.startswith("local")


def verify_executors(context: SparkContext, required: tuple[str, ...] = REQUIRED) -> None:
    """Ask the executors what they can import; raises `EngineError` that names what is missing."""
    tasks = max(1, context.defaultParallelism)
    try:
        answers = (
            context.parallelize(range(tasks), tasks)
            .mapPartitions(partial(missing_imports, required))
            .collect()
        )
    except (Py4JError, PySparkException) as exc:
        raise EngineError(f"the executors' Python does not work: {_telling_line(exc)}") from exc
    for host, version, _, missing in sorted(answers):
        if missing:
            raise EngineError(
                f"Python {version} of the executors on {host} lacks {', '.join(missing)}: install "
                "what is missing there, or name another Python with spark.pyspark.python"
            )


def _submitted() -> SparkConf:
    """What spark-submit was told; nothing where it did not start this process."""
    is_submitted = _PASSED_BY_SPARK_SUBMIT in os.environ
    if is_submitted:
        # Without a connection to its JVM the defaults are empty, and the mirror would run here.
        SparkContext._ensure_initialized()
    return SparkConf(loadDefaults=is_submitted)


def _has_own_jvm(engine: EngineConfig) -> bool:
    """Whether the JVM is started here, with options of ours: those of an operator stand alone."""
    is_ours = is_local(engine.master or "local[*]") and _PASSED_BY_SPARK_SUBMIT not in os.environ
    return is_ours and _JVM_OPTIONS not in engine.spark


def _conf(
    engine: EngineConfig,
    scratch: Path,
    given: SparkConf,
    *,
    has_secrets: bool,
    archive: Path | None = None,
    has_queries: bool = False,
    tries: int = _TASK_FAILURES_MAX,
) -> SparkConf:
    """`given` with what a mirror needs; it holds what spark-submit was told, the master as well."""
    asked = engine.master or given.get("spark.master", "") or "local[*]"
    if told := warning(asked, engine.slot_cpus):
        _log.warning(told)
    master = _with_retries(master_for(asked, engine.slot_cpus), tries)
    settings = {
        "spark.app.name": "heliograph",
        "spark.task.cpus": booking(engine.slot_cpus),
        "spark.task.maxFailures": str(tries),
        # A second copy of a slot would carry the same lanes.
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        # A function above this size is put into a file, and a slot's order holds credentials.
        "spark.broadcast.UDFCompressionThreshold": str(_ORDER_BYTES_MAX),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
    }
    if has_secrets:
        # A slot's order is a broadcast block to Spark, which may go to disk when memory is short.
        settings["spark.io.encryption.enabled"] = "true"
    if is_local(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            _JVM_OPTIONS: " ".join(
                (
                    _SMALL_JVM if has_queries else _LIGHT_JVM,
                    archive_options(archive) if archive else "",
                )
            ).strip(),
            # A JVM that is killed leaves its files; in here they go with everything else.
            "spark.local.dir": str(scratch),
        }
    if engine.link_host is not None and not is_local(master):
        settings["spark.driver.host"] = engine.link_host
    given.setMaster(master)
    for key, value in (settings | dict(engine.spark)).items():
        if key not in _LEFT_TO_SPARK_SUBMIT or key in engine.spark or not given.contains(key):
            given.set(key, value)
    return given


def _with_retries(master: str, tries: int) -> str:
    """`local[N]` never retries a task; `local[N,F]` does."""
    match = _LOCAL.match(master)
    if match is None:
        return master
    return f"local[{match.group(1) or '1'},{tries}]"


def _shares_this_interpreter(master: str) -> bool:
    return is_local(master) and not master.startswith("local-cluster")


def _set_environment(engine: EngineConfig, master: str) -> None:
    """Spark takes these from the environment only; they are inherited by the JVM it starts."""
    wanted = engine.spark.get("spark.pyspark.python")
    if wanted is not None:
        os.environ["PYSPARK_PYTHON"] = wanted
    elif is_local(master):
        # Otherwise workers run the first `python3` on PATH, which knows nothing of us.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    if is_local(master):
        # The UI, where somebody turned it on, looks nowhere else for the address to bind.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def _start_context(conf: SparkConf, log: Path, archive: Path | None) -> SparkContext:
    with log.open("wb") as stderr:
        try:
            gateway = _gateway(conf, stderr)
        except PySparkException:
            if archive is None or not archive.exists():
                raise
            # Java refuses an archive that does not fit, and may die of one that a disk has damaged.
            conf.set(_JVM_OPTIONS, _LIGHT_JVM)
            gateway = _gateway(conf, stderr)
            archive.unlink(missing_ok=True)
        master, jvm = conf.get("spark.master", "") or "", getattr(gateway, "proc", None)
        with register_in_time(master, jvm):
            return SparkContext(conf=conf, gateway=gateway)


def _why(log: Path, exc: Exception) -> str:
    """One line that says why Spark did not start: its own, or that of the exception."""
    said = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    lines = [*said, *str(exc).splitlines()]
    # Spark gives up on a master after a minute and stops by itself, whatever is done with it then.
    if any(sign in line for line in lines for sign in _UNANSWERED):
        return "the master does not answer"
    found = next(filter(None, map(_REASON.search, lines)), None)
    if found is None:
        return _telling_line(exc)
    return found.group().removeprefix("Exception: ").removeprefix("Error: ").strip()


def _gateway(conf: SparkConf, stderr: IO[bytes]) -> JavaGateway | None:
    """The JVM: one that exists already, or a new one in a process group of its own.

    A signal meant to end the mirror must reach the driver alone: a JVM that ends with it takes the
    slots along before they have settled.
    """
    existing = SparkContext._gateway
    if existing is not None or _PASSED_BY_SPARK_SUBMIT in os.environ:
        return existing
    # Every setting given here becomes an argument of the JVM, which all users of the machine can
    # read. The context gets the others through the gateway.
    shown = SparkConf(loadDefaults=False)
    for key, value in conf.getAll():
        if not is_secret_key(key):
            shown.set(key, value)
    return launch_gateway(shown, popen_kwargs={"stderr": stderr, "start_new_session": True})


@contextmanager
def _environment_without(names: Collection[str]) -> Iterator[None]:
    """What `${env:NAME}` stands for is needed on the driver alone, and the environment of a JVM can
    be read as long as it runs."""
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _holds_secrets(section: Section) -> bool:
    parts = [
        part
        for _, value in section
        for part in (value.values() if isinstance(value, Mapping) else (value,))
    ]
    return any(
        isinstance(part, Secret) or (isinstance(part, Section) and _holds_secrets(part))
        for part in parts
    )


def _encrypts(conf: SparkConf) -> bool:
    return any(str(conf.get(key, "false")).lower() == "true" for key in _ENCRYPTING)


def _pack(scratch: Path) -> Path:
    """A zip of this very package, as installed or as checked out."""
    source = Path(heliograph.__file__).parent
    archive = scratch / "heliograph.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.write(file, Path(source.name) / file.relative_to(source))
    return archive


def _telling_line(exc: Exception) -> str:
    """The line of a long Java story that says what is wrong."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    for sign in ("PYTHON_VERSION_MISMATCH", "Cannot run program", "ModuleNotFoundError"):
        for line in lines:
            if sign in line:
                return line
    return lines[0] if lines else type(exc).__name__
