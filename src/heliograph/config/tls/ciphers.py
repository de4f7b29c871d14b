"""Java's names of cipher suites into OpenSSL's. No I/O; runs anywhere."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence


def openssl_ciphers(suites: Sequence[str]) -> tuple[str, ...]:
    """The suites of TLS 1.2 under OpenSSL's names; those of TLS 1.3 are always on and left out.

    Raises ValueError for a suite this machine's OpenSSL does not have.
    """
    found: list[str] = []
    for suite in suites:
        if "_WITH_" not in suite and suite.startswith("TLS_"):
            continue
        name = _openssl_name(suite)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(name)
        except ssl.SSLError as exc:
            raise ValueError(f"where `{suite}` is unknown to OpenSSL") from exc
        found.append(name)
    return tuple(found)


def _openssl_name(suite: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is `ECDHE-RSA-AES128-GCM-SHA256`."""
    exchange, with_, cipher = suite.partition("_WITH_")
    if not with_:
        return suite
    exchange = re.sub(r"^(TLS|SSL)_", "", exchange).replace("_", "-")
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"
