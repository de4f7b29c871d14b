"""An examination as JSON, as `doctor --json` prints it. Runs on the driver."""

from __future__ import annotations

from heliograph.doctor.finding import Severity
from heliograph.document import Document, OrNull, RoundedSeconds


class FindingDocument(Document):
    check: str
    about: str
    severity: Severity
    what: str
    why: OrNull
    fix: OrNull


class ReportDocument(Document):
    at_ms: int
    seconds: RoundedSeconds
    unreachable: tuple[str, ...]
    findings: tuple[FindingDocument, ...]
