"""What spark-submit was told counts: its master, and the address it gave the driver."""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkConf

from heliograph.config.schema import EngineConfig
from heliograph.engine.session import _conf

SUBMITTED = {
    "spark.master": "k8s://https://10.0.0.1:443",
    "spark.driver.host": "mirror-driver-svc.kafka.svc",
    "spark.driver.bindAddress": "10.1.2.3",
    "spark.local.dir": "/var/data",
    "spark.ui.enabled": "true",
    "spark.speculation": "true",
}


def conf_of(engine: EngineConfig, folder: Path, given: dict[str, str]) -> dict[str, str]:
    conf = SparkConf(loadDefaults=False)
    for key, value in given.items():
        conf.set(key, value)
    return dict(_conf(engine, folder, conf, has_secrets=False).getAll())


def test_a_submitted_application_keeps_its_master_and_its_address(tmp_path: Path) -> None:
    found = conf_of(EngineConfig(), tmp_path, SUBMITTED)

    kept = {key: found[key] for key in SUBMITTED if key != "spark.speculation"}
    assert kept == {key: SUBMITTED[key] for key in kept}
    assert found["spark.speculation"] == "false"


def test_the_file_wins_over_what_was_submitted(tmp_path: Path) -> None:
    engine = EngineConfig(master="local[2]", spark={"spark.ui.enabled": "false"})

    found = conf_of(engine, tmp_path, SUBMITTED)

    assert found["spark.master"].startswith("local[2,")
    assert found["spark.driver.host"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "false"


def test_without_either_spark_runs_here(tmp_path: Path) -> None:
    found = conf_of(EngineConfig(), tmp_path, {})

    assert found["spark.master"].startswith("local[*,")
    assert found["spark.ui.enabled"] == "false"
