"""A drill that stands back: its process, and what comes back from it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from heliograph.config.load import load_config
from heliograph.drill.background import drill_in_background, lower_priority
from heliograph.drill.report import DrillOptions
from heliograph.errors import BrokerError
from tests.kit.mirror import write_config
from tests.unit.drill.drills import report


def _tell_priority(there: Connection) -> None:
    lower_priority()
    there.send(
        (
            os.getsid(0) == os.getpid(),
            os.getpriority(os.PRIO_PROCESS, 0),
            sys.platform != "linux" or os.sched_getscheduler(0) == os.SCHED_IDLE,
        )
    )


def test_its_process_leads_a_session_that_lets_everybody_else_go_first() -> None:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_tell_priority, args=(there,))

    child.start()
    leads, niceness, is_idle = here.recv()
    child.join()

    assert leads
    assert niceness == 19
    assert is_idle


def test_what_its_process_could_not_do_is_raised_here(tmp_path: Path) -> None:
    file = write_config(
        tmp_path / "mm2.properties", {"A": "127.0.0.1:1", "B": "127.0.0.1:1"}, {"A->B": {}}
    )
    config = load_config(file)

    with pytest.raises(BrokerError, match="cluster B"):
        drill_in_background(config, config.flows[0].id, DrillOptions())


def test_a_report_crosses_from_its_process() -> None:
    made = report()

    assert pickle.loads(pickle.dumps(made)) == made
