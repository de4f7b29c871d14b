"""What `--json` prints: documents that print themselves. Driver only."""

from __future__ import annotations

from heliograph import document
from heliograph.cli.output import print_json
from heliograph.document import At, Bounds, NameOf, OrNull, RoundedSeconds, Text

__all__ = ["At", "Bounds", "Document", "NameOf", "OrNull", "RoundedSeconds", "Text"]


class Document(document.Document):
    """One JSON object; `tests/golden/documents` has an example of each."""

    def print(self, *, indent: int | None = 2) -> None:
        print_json(self.plain(), indent=indent)
