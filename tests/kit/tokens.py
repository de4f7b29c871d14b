"""A token endpoint on loopback that signs, and the public keys a broker checks tokens with."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

_KEY_ID: Final = "tests"
_LIFE_S: Final = 600


class TokenEndpoint(ThreadingHTTPServer):
    """Exchanges client credentials for signed tokens, as RFC 6749 section 4.4 says."""

    daemon_threads = True

    def __init__(self, secrets: Mapping[str, str], jwks_path: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.secrets = secrets
        """Of clients, by id; the id becomes the principal."""
        self.issued: list[str] = []
        """Every token that was handed out."""
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        jwks_path.write_text(json.dumps({"keys": [self._public_key()]}), encoding="utf-8")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"

    def token_for(self, client_id: str) -> str:
        now_s = int(time.time())
        claims = {"sub": client_id, "scope": "kafka", "iat": now_s, "exp": now_s + _LIFE_S}
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        token = f"{signed}.{_base64url(signature)}"
        self.issued.append(token)
        return token

    def _public_key(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "alg": "RS256",
            "use": "sig",
            "kid": _KEY_ID,
            "n": _base64url(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8)),
            "e": _base64url(numbers.e.to_bytes(3)),
        }


@contextmanager
def token_endpoint(secrets: Mapping[str, str], jwks_path: Path) -> Iterator[TokenEndpoint]:
    """Serves until the end of the block."""
    server = TokenEndpoint(secrets, jwks_path)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Answering(BaseHTTPRequestHandler):
    server: TokenEndpoint

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        kind, _, encoded = (self.headers["Authorization"] or "").partition(" ")
        client_id, _, secret = base64.b64decode(encoded).decode().partition(":")
        if kind != "Basic" or self.server.secrets.get(client_id) != secret:
            self._answer(401, {"error": "invalid_client"})
            return
        token = self.server.token_for(client_id)
        self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": _LIFE_S})

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
