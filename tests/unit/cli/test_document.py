"""Every `--json` document has the fields, order and values of the version before it was typed.

`tests/golden/documents` was written by the functions these types replaced, from the same values.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.audit.findings import FindingKind
from heliograph.cli import plan, topology
from heliograph.cli.adopt import AdoptDocument
from heliograph.cli.alarms import AlarmsDocument
from heliograph.cli.audit import AuditDocument
from heliograph.cli.conflicts import ConflictsDocument
from heliograph.cli.offset_tables import OffsetsDocument
from heliograph.cli.pipeline import SampleDocument
from heliograph.cli.release import ReleaseDocument
from heliograph.cli.reset import ResetDocument
from heliograph.cli.spark_checkpoint import CheckpointDocument
from heliograph.cli.status import StatusDocument
from heliograph.cli.transform import TransformDocument
from heliograph.cli.tune import TuneDocument
from heliograph.cli.verdict import VerdictDocument
from heliograph.document import Document
from heliograph.inspect.groups_document import GroupsDocument
from tests.unit.cli import canned, canned_changes

GOLDEN = Path(__file__).parents[2] / "golden" / "documents"
REPORTS, REPAIRS, SPARK_START_S = canned_changes.AUDIT
DOCUMENTS: dict[str, Document] = {
    "status": StatusDocument.of(canned.STATUS),
    "groups": GroupsDocument.of(canned.GROUPS),
    "offsets": OffsetsDocument.of(canned_changes.OFFSETS),
    "offsets-dry": OffsetsDocument.of(canned_changes.OFFSETS_DRY),
    "topology": topology.as_document(canned.TOPOLOGY),
    "adopt": AdoptDocument.of({"written_lanes": 1, "flows": canned_changes.ADOPT}),
    "release": ReleaseDocument.of({"written_lanes": 1, "flows": canned_changes.RELEASE}),
    "reset": ResetDocument.of({"flow": canned.AB, "written": True, "lanes": canned_changes.RESET}),
    "pipeline": SampleDocument.of(canned.SAMPLE),
    "plan": plan.as_document(canned_changes.PLAN),
    "audit": AuditDocument.of(
        {"spark_start_seconds": SPARK_START_S, "flows": REPORTS, "repairs": REPAIRS}
    ),
    "verdict": VerdictDocument.of({"at_ms": 1, "flows": canned.VERDICTS}),
    "conflicts": ConflictsDocument.of(canned.CONFLICTS),
    "tune": TuneDocument.of(canned.TUNED),
    "alarms": AlarmsDocument.of({"at_ms": 1, "flows": canned.ALARMS}),
    "transform": TransformDocument.of({"flows": [canned.TRIAL]}),
    "letters": canned.LETTERS,
    "replay": canned.REPLAY,
    "spark-checkpoint": CheckpointDocument.of(canned_changes.CHECKPOINT),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_the_golden_one_to_the_byte(name: str) -> None:
    golden = (GOLDEN / f"{name}.json").read_text()

    assert json.dumps(DOCUMENTS[name].plain(), indent=2) + "\n" == golden


def test_every_golden_document_is_compared() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(DOCUMENTS)


def test_an_audits_topic_counts_every_kind_of_finding() -> None:
    (flow,) = DOCUMENTS["audit"].plain()["flows"]

    assert {kind.value for kind in FindingKind} <= set(flow["topics"][0])
