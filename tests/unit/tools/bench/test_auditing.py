from __future__ import annotations

from dataclasses import replace

from heliograph_tools.bench.auditing import AuditRun
from heliograph_tools.bench.report import verdicts
from heliograph_tools.bench.rows import AuditRow, System, choose_rows
from heliograph_tools.bench.suite import RowResult, one_line

RUN = AuditRun(
    system=System.HELIOGRAPH,
    round_index=0,
    records=5_000_000,
    findings=0,
    command_s=9.0,
    audit_s=3.0,
    python_consumer_s=8.0,
    java_consumer_s=4.0,
)


def test_an_audit_must_be_as_fast_as_either_consumer_and_find_nothing() -> None:
    (row,) = choose_rows(("audit",), 1.0)
    slow, wrong = replace(RUN, audit_s=5.0), replace(RUN, findings=1)

    told = [verdicts(RowResult(row=row, runs=(each,), failures=())) for each in (RUN, slow, wrong)]

    assert [[verdict.reached for verdict in one] for one in told] == [
        [True, True],
        [True, False],
        [False, False],
    ]
    assert told[0][1].got == "0.75 x, with Spark's start 2.25 x"


def test_the_row_shrinks_to_whole_partitions_and_says_what_it_measured() -> None:
    (row,) = choose_rows(("audit",), 0.001)

    assert isinstance(row, AuditRow)
    assert row.records == 5_000
    assert "5,000,000 records on both sides: 3.00 s" in one_line(RUN)
