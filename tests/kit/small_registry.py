"""A schema registry in memory, behind real HTTP, that speaks the published REST API.

Subjects, versions, ids, references, compatibility levels, modes with import, lookups: what the
documents of that API promise, with its error codes. Two schemas are compatible here unless the
newer one's text has `breaking` in it: what Avro allows is not what these tests are about. A real
registry without import mode is in `tests/soak/test_apicurio.py`.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from heliograph.config.registry import RegistryConfig

Json = dict[str, Any]
Hold = Callable[[str, str], tuple[int, bytes] | None]


class Refused(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class SmallRegistry:
    """What it holds; tests may change it, and read what was asked."""

    url: str = ""
    first_id: int = 1
    has_modes: bool = True
    user_info: str | None = None
    subjects: dict[str, dict[int, Json]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    level: str = "BACKWARD"
    mode: str = "READWRITE"
    asked: list[str] = field(default_factory=list)
    hold: Hold | None = None
    """Answers in its place, where it returns something."""

    @property
    def config(self) -> RegistryConfig:
        return RegistryConfig(urls=(self.url,), timeout_ms=1_000)

    @property
    def writes(self) -> list[str]:
        return [each for each in self.asked if not each.startswith("GET") and "/versions" in each]

    def put(self, subject: str, text: str, **more: Any) -> int:
        """Register a schema; returns its id."""
        return int(self._register({"schema": text, **more}, subject)["id"])

    def drop(self, subject: str) -> None:
        del self.subjects[subject]

    def ids_of(self, subject: str) -> dict[int, int]:
        return {version: each["id"] for version, each in self.subjects.get(subject, {}).items()}

    # -- the API

    def answer(self, method: str, path: str, body: Json) -> Any:
        for asked, pattern, work in _ROUTES:
            found = re.fullmatch(pattern, path)
            if asked == method and found is not None:
                return work(self, body, *map(unquote, found.groups()))
        raise Refused(404, 404, "HTTP 404 Not Found")

    def _every(self) -> Iterator[tuple[str, int, Json]]:
        for subject, versions in self.subjects.items():
            for version, each in versions.items():
                yield subject, version, each

    def _subjects(self, body: Json) -> list[str]:
        return sorted(self.subjects)

    def _versions(self, body: Json, subject: str) -> list[int]:
        return sorted(self._of(subject))

    def _of(self, subject: str) -> dict[int, Json]:
        if subject not in self.subjects:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _version(self, body: Json, subject: str, version: str) -> Json:
        held = self._of(subject)
        number = max(held) if version == "latest" else int(version)
        if number not in held:
            raise Refused(404, 40402, f"Version {version} not found.")
        return {"subject": subject, "version": number, **held[number]}

    def _by_id(self, body: Json, schema_id: str) -> Json:
        for _, _, each in self._every():
            if each["id"] == int(schema_id):
                return {name: value for name, value in each.items() if name != "id"}
        raise Refused(404, 40403, f"Schema {schema_id} not found")

    def _by_guid(self, body: Json, guid: str) -> Json:
        for _, _, each in self._every():
            if guid_of(each["schema"]) == uuid.UUID(guid):
                return {name: value for name, value in each.items() if name != "id"}
        raise Refused(404, 40403, f"Schema {guid} not found")

    def _places(self, body: Json, schema_id: str) -> list[Json]:
        found = [(s, v) for s, v, each in self._every() if each["id"] == int(schema_id)]
        if not found:
            raise Refused(404, 40403, f"Schema {schema_id} not found")
        return [{"subject": subject, "version": version} for subject, version in found]

    def _find(self, body: Json, subject: str) -> Json:
        for version, each in self._of(subject).items():
            if _same(each, body):
                return {"subject": subject, "version": version, **each}
        raise Refused(404, 40403, "Schema not found")

    def _register(self, body: Json, subject: str) -> Json:
        self._check_references(body)
        held = self.subjects.get(subject, {})
        mode = self.modes.get(subject, self.mode)
        if mode.startswith("READONLY"):
            raise Refused(422, 42205, f"Subject {subject} is in read-only mode")
        for each in held.values():
            if _same(each, body):
                return {"id": each["id"]}
        if "id" in body:
            return self._import(subject, body, mode)
        if mode == "IMPORT":
            raise Refused(422, 42205, f"Subject {subject} is in import mode")
        if held and self._breaks(subject, body):
            raise Refused(409, 409, "Schema being registered is incompatible with an earlier one")
        known = [each["id"] for _, _, each in self._every() if _same(each, body)]
        used = [each["id"] for _, _, each in self._every()]
        schema_id = known[0] if known else max([self.first_id - 1, *used]) + 1
        version = max(held, default=0) + 1
        self.subjects.setdefault(subject, {})[version] = {"id": schema_id, **_held(body)}
        return {"id": schema_id}

    def _import(self, subject: str, body: Json, mode: str) -> Json:
        if mode != "IMPORT":
            raise Refused(422, 42205, f"Subject {subject} is not in import mode")
        for _, _, each in self._every():
            if each["id"] == body["id"] and not _same(each, body):
                said = f"Overwrite new schema with id {body['id']} is not permitted."
                raise Refused(422, 42207, said)
        self.subjects.setdefault(subject, {})[body["version"]] = {"id": body["id"], **_held(body)}
        return {"id": body["id"]}

    def _check_references(self, body: Json) -> None:
        for each in body.get("references", []):
            if each["version"] not in self.subjects.get(each["subject"], {}):
                raise Refused(422, 42201, f"Invalid reference {each['subject']}")

    def _breaks(self, subject: str, body: Json) -> bool:
        return self.levels.get(subject, self.level) != "NONE" and "breaking" in body["schema"]

    def _compatible(self, body: Json, subject: str) -> Json:
        self._of(subject)
        return {"is_compatible": not self._breaks(subject, body)}

    def _level(self, body: Json, subject: str | None = None) -> Json:
        if subject is not None and subject not in self.levels:
            raise Refused(404, 40408, f"Subject '{subject}' has no subject-level compatibility")
        return {"compatibilityLevel": self.level if subject is None else self.levels[subject]}

    def _set_level(self, body: Json, subject: str) -> Json:
        self._of(subject)  # as some do: no level before the first version
        self.levels[subject] = body["compatibility"]
        return body

    def _mode(self, body: Json, subject: str | None = None) -> Json:
        if not self.has_modes:
            raise Refused(404, 0, "Operation not supported.")
        if subject is not None and subject not in self.modes:
            raise Refused(404, 40409, f"Subject '{subject}' has no subject-level mode")
        return {"mode": self.mode if subject is None else self.modes[subject]}

    def _set_mode(self, body: Json, subject: str) -> Json:
        self._mode({})
        self.modes[subject] = body["mode"]
        return body

    def _drop_mode(self, body: Json, subject: str) -> Json:
        return {"mode": self.modes.pop(subject, self.mode)}


def guid_of(text: str) -> uuid.UUID:
    """As here; a real registry's follows from the text as well."""
    return uuid.uuid5(uuid.NAMESPACE_OID, text)


def _same(held: Json, body: Json) -> bool:
    return _held(held) == _held(body)


def _held(body: Json) -> Json:
    kept = {name: body[name] for name in ("schema", "references") if body.get(name)}
    if body.get("schemaType", "AVRO") != "AVRO":
        kept["schemaType"] = body["schemaType"]
    return kept


_NAME = "([^/]+)"
_ROUTES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("GET", "/subjects", SmallRegistry._subjects),
    ("GET", f"/subjects/{_NAME}/versions", SmallRegistry._versions),
    ("GET", f"/subjects/{_NAME}/versions/{_NAME}", SmallRegistry._version),
    ("POST", f"/subjects/{_NAME}", SmallRegistry._find),
    ("POST", f"/subjects/{_NAME}/versions", SmallRegistry._register),
    ("GET", r"/schemas/ids/(\d+)", SmallRegistry._by_id),
    ("GET", "/schemas/guids/([0-9a-f-]{36})", SmallRegistry._by_guid),
    ("GET", r"/schemas/ids/(\d+)/versions", SmallRegistry._places),
    ("POST", f"/compatibility/subjects/{_NAME}/versions/latest", SmallRegistry._compatible),
    ("GET", "/config", SmallRegistry._level),
    ("GET", f"/config/{_NAME}", SmallRegistry._level),
    ("PUT", f"/config/{_NAME}", SmallRegistry._set_level),
    ("GET", "/mode", SmallRegistry._mode),
    ("GET", f"/mode/{_NAME}", SmallRegistry._mode),
    ("PUT", f"/mode/{_NAME}", SmallRegistry._set_mode),
    ("DELETE", f"/mode/{_NAME}", SmallRegistry._drop_mode),
)


@contextmanager
def small_registry(tls: ssl.SSLContext | None = None, **settings: Any) -> Iterator[SmallRegistry]:
    """Serves on loopback until the end of the block; by HTTPS with `tls`."""
    held = SmallRegistry(**settings)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            path = urlsplit(self.path).path
            with lock:
                held.asked.append(f"{self.command} {path}")
                status, answer = _answered(held, self.command, path, body, self.headers)
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    held.url = f"http://127.0.0.1:{server.server_address[1]}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        held.url = held.url.replace("http", "https")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield held
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answered(
    held: SmallRegistry, method: str, path: str, body: Json, headers: Any
) -> tuple[int, bytes]:
    if held.hold is not None and (instead := held.hold(method, path)) is not None:
        return instead
    if held.user_info is not None:
        coded = base64.b64encode(held.user_info.encode()).decode()
        if headers.get("Authorization") != f"Basic {coded}":
            return 401, b'{"error_code":401,"message":"Unauthorized"}'
    try:
        return 200, json.dumps(held.answer(method, path, body)).encode()
    except Refused as exc:
        said = {"error_code": exc.code, "message": exc.message}
        return exc.status, json.dumps(said).encode()
