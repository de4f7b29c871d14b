"""One schema registry, by the REST API that all of them speak. Blocks; driver and executors.

Schemas never change under their id, nor under a subject and version, so each is asked for once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import quote
from uuid import UUID

from heliograph.config.registry import RegistryConfig
from heliograph.errors import RegistryError
from heliograph.registry.http import RegistryHttp
from heliograph.registry.schema import (
    Nonsense,
    Registered,
    Schema,
    read_names,
    read_numbers,
    read_places,
    read_registered,
    read_schema,
    schema_json,
    whole,
)

T = TypeVar("T")
_KEPT_MAX: Final = 20_000
_NOT_FOUND: Final = 404
_UNSUPPORTED: Final = (404, 405, 409, 501)
"""What registries without modes answer that are asked for one."""


class Registry:
    """Threads may share it."""

    def __init__(
        self, alias: str, config: RegistryConfig, http: RegistryHttp | None = None
    ) -> None:
        self.alias = alias
        self.where = f"schema registry of {alias}"
        self._http = http or RegistryHttp(self.where, config)
        self._schemas: OrderedDict[int, Schema] = OrderedDict()
        self._versions: OrderedDict[tuple[str, int], Registered] = OrderedDict()

    # -- what it holds

    def subjects(self) -> list[str]:
        return self._read(read_names, self._http.ask("GET", "/subjects"))

    def versions(self, subject: str) -> list[int]:
        """In ascending order; empty where there is no such subject."""
        found = self._or_none("GET", f"/subjects/{_name(subject)}/versions")
        return [] if found is None else sorted(self._read(read_numbers, found))

    def version(self, subject: str, version: int) -> Registered:
        known = self._versions.get((subject, version))
        if known is not None:
            return known
        path = f"/subjects/{_name(subject)}/versions/{version}"
        found = self._read(read_registered, self._http.ask("GET", path))
        if (found.subject, found.version) != (subject, version):
            raise RegistryError(self.where, f"answers with {found} when asked for {subject}")
        return _keep(self._versions, (subject, version), found)

    def schema(self, schema_id: int) -> Schema | None:
        """None where it knows no such id."""
        known = self._schemas.get(schema_id)
        if known is not None:
            return known
        found = self._or_none("GET", f"/schemas/ids/{schema_id}")
        if found is None:
            return None
        return _keep(self._schemas, schema_id, self._read(read_schema, found))

    def schema_of_guid(self, guid: UUID) -> Schema | None:
        """The one that all registries know by this name; None where this one does not."""
        found = self._or_none("GET", f"/schemas/guids/{guid}")
        return None if found is None else self._read(read_schema, found)

    def places(self, schema_id: int) -> list[tuple[str, int]]:
        """Subjects and versions that have the schema of this id."""
        found = self._or_none("GET", f"/schemas/ids/{schema_id}/versions")
        return [] if found is None else self._read(read_places, found)

    def find(self, subject: str, schema: Schema) -> Registered | None:
        """The version of the subject that is this schema, as the registry itself compares."""
        found = self._or_none("POST", f"/subjects/{_name(subject)}", schema_json(schema))
        return None if found is None else self._read(read_registered, found)

    def compatibility(self, subject: str) -> str | None:
        """The subject's own level; None where it has none."""
        return self._level(f"/config/{_name(subject)}", "compatibilityLevel")

    def compatibility_of_all(self) -> str | None:
        """Of subjects without a level of their own."""
        return self._level("/config", "compatibilityLevel")

    def mode(self, subject: str) -> str | None:
        """The subject's own mode; None where it has none."""
        return self._level(f"/mode/{_name(subject)}", "mode", unsupported=True)

    def mode_of_all(self) -> str | None:
        """None where the registry has no modes."""
        return self._level("/mode", "mode", unsupported=True)

    def is_compatible(self, subject: str, schema: Schema) -> bool:
        """With the subject's newest version, by the level it has now; a new subject takes all."""
        path = f"/compatibility/subjects/{_name(subject)}/versions/latest"
        found = self._or_none("POST", path, schema_json(schema))
        return found is None or bool(isinstance(found, dict) and found.get("is_compatible"))

    # -- what changes it

    def register(self, subject: str, schema: Schema, *, imported: Registered | None = None) -> int:
        """Its id: of a schema that the subject has already, the one it has. `imported` asks for the
        id and version it has elsewhere."""
        body = schema_json(schema)
        if imported is not None:
            body |= {"id": imported.id, "version": imported.version}
        found = self._http.ask("POST", f"/subjects/{_name(subject)}/versions", body)
        return self._read(lambda answer: whole(answer, "id"), found)

    def set_compatibility(self, subject: str, level: str) -> None:
        self._http.ask("PUT", f"/config/{_name(subject)}", {"compatibility": level})

    def set_mode(self, subject: str, mode: str | None) -> None:
        """None takes the subject's own mode away."""
        path = f"/mode/{_name(subject)}"
        if mode is None:
            self._or_none("DELETE", path)
        else:
            # Without force only a subject without versions may be imported into.
            self._http.ask("PUT", f"{path}?force=true", {"mode": mode})

    def _level(self, path: str, field: str, *, unsupported: bool = False) -> str | None:
        try:
            found = self._http.ask("GET", path)
        except RegistryError as exc:
            if exc.status in (_UNSUPPORTED if unsupported else (_NOT_FOUND,)):
                return None
            raise
        level = found.get(field) if isinstance(found, dict) else None
        if not isinstance(level, str):
            raise RegistryError(self.where, f"answers GET {path} with no `{field}`")
        return level

    def _or_none(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """None where there is no such thing."""
        try:
            return self._http.ask(method, path, body)
        except RegistryError as exc:
            if exc.status == _NOT_FOUND:
                return None
            raise

    def _read(self, read: Callable[[Any], T], found: Any) -> T:
        try:
            return read(found)
        except Nonsense as exc:
            raise RegistryError(self.where, f"answers with nonsense: {exc}") from exc


def _keep(kept: OrderedDict[Any, T], key: Any, value: T) -> T:
    kept[key] = value
    if len(kept) > _KEPT_MAX:
        kept.popitem(last=False)
    return value


def _name(subject: str) -> str:
    return quote(subject, safe="")
