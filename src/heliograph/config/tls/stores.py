"""Keystores and truststores into PEM text. No I/O; runs on the driver.

PEM, PKCS12 and Java's own JKS are read. What a file is follows from its first bytes, since Java
itself opens PKCS12 where JKS is declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
from cryptography.x509 import (
    InvalidVersion,
    load_der_x509_certificate,
    load_pem_x509_certificates,
)

from heliograph.config.secrets import Secret
from heliograph.config.tls import jks

_JCEKS: Final = b"\xce\xce\xce\xce"
_JCEKS_REFUSED: Final = (
    "a JCEKS store, which only Java reads; `keytool -importkeystore` makes it PKCS12"
)
_PEM_BLOCK: Final = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----\s*(.*?)\s*-----END \1-----", re.DOTALL
)


class UnreadableStore(ValueError):
    """Why a store or certificate cannot be used; never quotes what is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAndChain:
    key_pem: Secret
    key_password: Secret | None
    certificate_pem: str


def trusted_certificates(content: bytes, password: Secret | None) -> str:
    """All certificates of a truststore."""
    if content.startswith(jks.MAGIC):
        return _trusted_of_jks(content, password)
    if content.startswith(_JCEKS):
        raise UnreadableStore(_JCEKS_REFUSED)
    if b"-----BEGIN" in content:
        return certificates_of_pem(content.decode("utf-8", "replace"))
    try:
        opened = load_pkcs12(content, _bytes(password))
    except ValueError as exc:
        raise UnreadableStore("neither PEM nor a PKCS12 store this password opens") from exc
    every = [opened.cert, *opened.additional_certs]
    found = [held.certificate for held in every if held is not None]
    if not found:
        raise UnreadableStore("a PKCS12 store without certificates")
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in found)


def key_and_chain(
    content: bytes, store_password: Secret | None, key_password: Secret | None
) -> KeyAndChain:
    """The private key of a keystore and the certificates that go with it."""
    if content.startswith(jks.MAGIC):
        return _key_of_jks(content, store_password, key_password)
    if content.startswith(_JCEKS):
        raise UnreadableStore(_JCEKS_REFUSED)
    if b"-----BEGIN" in content:
        text = content.decode("utf-8", "replace")
        return key_and_chain_of_pem(text, text, key_password)
    try:
        opened = load_pkcs12(content, _bytes(store_password))
    except ValueError as exc:
        raise UnreadableStore("neither PEM nor a PKCS12 store this password opens") from exc
    if opened.key is None or opened.cert is None:
        raise UnreadableStore("a PKCS12 store without a private key and its certificate")
    chain = [opened.cert.certificate, *(held.certificate for held in opened.additional_certs)]
    key_pem = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return KeyAndChain(
        key_pem=Secret(key_pem),
        key_password=None,
        certificate_pem="".join(one.public_bytes(Encoding.PEM).decode() for one in chain),
    )


def _trusted_of_jks(content: bytes, password: Secret | None) -> str:
    found = _opened_jks(content, password).trusted
    if not found:
        raise UnreadableStore("a JKS store without trusted certificates")
    return _pem_of(found)


def _key_of_jks(
    content: bytes, store_password: Secret | None, key_password: Secret | None
) -> KeyAndChain:
    keys = _opened_jks(content, store_password).keys
    if not keys:
        raise UnreadableStore("a JKS store without a private key")
    # As in Java, the store's password opens a key that has none of its own.
    password = key_password or store_password
    if password is None:
        raise UnreadableStore("a JKS store, which needs `ssl.keystore.password`")
    try:
        key = load_der_private_key(keys[0].opened(password.reveal()), None)
    except ValueError as exc:
        said = str(exc) if isinstance(exc, jks.BadJks) else "a JKS store with an unreadable key"
        raise UnreadableStore(said) from exc
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return KeyAndChain(
        key_pem=Secret(key_pem), key_password=None, certificate_pem=_pem_of(keys[0].chain)
    )


def _opened_jks(content: bytes, password: Secret | None) -> jks.JksStore:
    try:
        return jks.read_jks(content, None if password is None else password.reveal())
    except jks.BadJks as exc:
        raise UnreadableStore(str(exc)) from exc


def _pem_of(certificates: Iterable[bytes]) -> str:
    try:
        found = [load_der_x509_certificate(der) for der in certificates]
    except (ValueError, InvalidVersion) as exc:
        raise UnreadableStore("a JKS store with a certificate that cannot be read") from exc
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in found)


def certificates_of_pem(text: str) -> str:
    """The certificates in `text`, one line ending per line however the text came."""
    pem = "".join(_blocks(text, "CERTIFICATE"))
    if not pem:
        raise UnreadableStore("PEM without a certificate")
    try:
        load_pem_x509_certificates(pem.encode())
    except ValueError as exc:
        raise UnreadableStore("PEM with a certificate that cannot be read") from exc
    return pem


def key_and_chain_of_pem(
    key_text: str, chain_text: str, key_password: Secret | None
) -> KeyAndChain:
    keys = _blocks(key_text, "PRIVATE KEY")
    if not keys:
        raise UnreadableStore("PEM without a private key")
    encrypted = "ENCRYPTED" in keys[0]
    try:
        load_pem_private_key(keys[0].encode(), _bytes(key_password) if encrypted else None)
    except (ValueError, TypeError) as exc:
        locked, broken = "an encrypted key this password does not open", "a key that cannot be read"
        raise UnreadableStore(f"PEM with {locked if encrypted else broken}") from exc
    return KeyAndChain(
        key_pem=Secret(keys[0]),
        key_password=key_password if encrypted else None,
        certificate_pem=certificates_of_pem(chain_text),
    )


def _blocks(text: str, kind: str) -> list[str]:
    """PEM blocks whose label ends in `kind`; in a properties file blanks may end their lines."""
    found: list[str] = []
    for block in _PEM_BLOCK.finditer(text):
        label, body = block.groups()
        if not label.endswith(kind):
            continue
        # Legacy keys carry headers such as `Proc-Type`, where line ends matter.
        lines = body if ":" in body else "\n".join(re.findall(r".{1,64}", "".join(body.split())))
        found.append(f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
    return found


def _bytes(password: Secret | None) -> bytes | None:
    return None if password is None else password.reveal().encode()
