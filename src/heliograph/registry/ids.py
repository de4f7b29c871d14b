"""Ids of the source's registry as the target's has them, for a slot. Runs on executors."""

from __future__ import annotations

from heliograph.registry.asked import Asked
from heliograph.registry.pairing import Pairing


class IdMap(Asked[int, int]):
    """`get` returns the target's id, and None where the source's registry knows no such id."""

    def __init__(self, pairing: Pairing) -> None:
        super().__init__(self._looked_up, "asks the registries for schema id")
        self._pairing = pairing

    def _looked_up(self, schema_id: int) -> tuple[int | None, str]:
        """The id, or why there is none although the source has the schema."""
        source, target = self._pairing.source, self._pairing.target
        if source.schema(schema_id) is None:
            return None, ""
        places = source.places(schema_id)
        for subject, version in places:
            found = self._pairing.target_of(source.version(subject, version))
            if found is not None:
                return found.id, ""
        if not places:
            return None, f"schema id {schema_id} has no subject in the {source.where} any more"
        subject, version = places[0]
        return None, (
            f"schema id {schema_id} ({subject} version {version}) is not in the {target.where} "
            f"under {self._pairing.target_subject(subject)} yet"
        )
