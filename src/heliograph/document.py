"""What is shown as JSON is a type: its fields in order, and where each is read. Runs anywhere.

A document is made from the value it describes, attribute by attribute: a field is read from the
attribute of its own name, or from the path that `At` gives. Where the path ends early (the offset
of a translation that is None) the field has its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field


class Document(BaseModel):
    """One JSON object; `tests/golden/documents` has an example of each."""

    model_config = ConfigDict(from_attributes=True, frozen=True, extra="forbid")

    @classmethod
    def of(cls, value: object, *, context: Mapping[str, Any] | None = None) -> Self:
        """From an object's attributes, or from a mapping of field names."""
        return cls.model_validate(value, by_name=True, by_alias=True, context=context)

    def plain(self) -> dict[str, Any]:
        """As JSON has it, under the names the operator sees."""
        return self.model_dump(mode="json", by_alias=True)


def At(path: str, default: Any = ..., *, name: str | None = None) -> Any:  # noqa: N802
    """Where a field is read from, as `lane.source.topic`; `name` where JSON's is a Python word."""
    names = path.split(".")
    return Field(
        default=default,
        validation_alias=AliasPath(names[0], *names[1:]),
        serialization_alias=name,
    )


Text = Annotated[str, BeforeValidator(str)]
"""A flow, a lane, a path: as it prints."""
OrNull = Annotated[str | None, BeforeValidator(lambda text: text or None)]
"""A sentence; null where there is none."""
Bounds = Annotated[tuple[int, int], BeforeValidator(lambda part: (part.start, part.end))]
"""`[start, end)` as a list of two offsets."""
NameOf = Annotated[str, BeforeValidator(lambda member: member.name.lower())]
"""A member of an enumeration by its name; its value is a phrase for tables."""
RoundedSeconds = Annotated[float, BeforeValidator(lambda seconds: round(seconds, 3))]
