"""Java's own JKS stores: certificates and keys. No I/O; runs on the driver.

    u32 magic, u32 version, u32 entries
    entry: u32 1, utf alias, u64 time, u32 size, key, u32 certificates, certificates: a private key
           u32 2, utf alias, u64 time, certificate: a trusted one
    certificate: utf type (version 2 only), u32 size, DER
    20 bytes: SHA-1 of the password in UTF-16, `Mighty Aphrodite` and all before

A private key is an EncryptedPrivateKeyInfo of Sun's own cipher (1.3.6.1.4.1.42.2.17.1.1): 20 bytes
of salt, the key XORed with a chain of SHA-1 sums, and a SHA-1 of password and key to check them by.

Read here, and not by `keytool` or a package: loading a file starts no JVM, no password stands in a
command line, and the packages that read JKS bring four others along for ciphers JKS does not use.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"
_WHITENER: Final = b"Mighty Aphrodite"
_SUM_BYTES: Final = 20
_PRIVATE_KEY: Final = 1
_TRUSTED: Final = 2
_SUN_CIPHER: Final = bytes.fromhex("060a2b060104012a02110101")  # its OID, as DER has it
_SEQUENCE: Final = 0x30
_OCTETS: Final = 0x04
_U32: Final = struct.Struct(">I")


class BadJks(ValueError):
    """Why a store is not read; never quotes what is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JksStore:
    trusted: tuple[bytes, ...]
    """Certificates, DER."""
    keys: tuple[JksKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JksKey:
    sealed: bytes
    chain: tuple[bytes, ...]
    """Certificates, DER, the key's own first."""

    def opened(self, password: str) -> bytes:
        """The key as PKCS8, DER; raises `BadJks` where the password is another one."""
        salt, secret, check = _parts(self.sealed)
        whole = _utf16(password)
        stream = _key_stream(whole, salt, len(secret))
        plain = bytes(a ^ b for a, b in zip(secret, stream, strict=True))
        if not hmac.compare_digest(hashlib.sha1(whole + plain).digest(), check):
            raise BadJks("a JKS store with a key that this password does not open")
        return plain


def read_jks(content: bytes, password: str | None) -> JksStore:
    """The store; without a password it is read unchecked, as Java reads a truststore."""
    body, check = content[:-_SUM_BYTES], content[-_SUM_BYTES:]
    if password is not None:
        found = hashlib.sha1(_utf16(password) + _WHITENER + body).digest()
        if not hmac.compare_digest(found, check):
            raise BadJks("a JKS store that this password does not open, or a damaged one")
    cursor = _Cursor(body)
    cursor.take(len(MAGIC))
    version = cursor.number()
    if version not in (1, 2):
        raise BadJks(f"a JKS store of version {version}, which is not known")
    trusted: list[bytes] = []
    keys: list[JksKey] = []
    for _ in range(cursor.number()):
        kind = cursor.number()
        cursor.text()
        cursor.take(8)
        if kind == _TRUSTED:
            trusted.append(cursor.certificate(version))
        elif kind == _PRIVATE_KEY:
            sealed = cursor.sized()
            chain = tuple(cursor.certificate(version) for _ in range(cursor.number()))
            keys.append(JksKey(sealed=sealed, chain=chain))
        else:
            raise BadJks("a JKS store with an entry of an unknown kind")
    return JksStore(trusted=tuple(trusted), keys=tuple(keys))


class _Cursor:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, size: int) -> bytes:
        if size > len(self._content) - self._at:
            raise BadJks("a JKS store that is cut short")
        self._at += size
        return self._content[self._at - size : self._at]

    def number(self) -> int:
        (found,) = _U32.unpack(self.take(_U32.size))
        return int(found)

    def sized(self) -> bytes:
        return self.take(self.number())

    def text(self) -> bytes:
        return self.take(int.from_bytes(self.take(2), "big"))

    def certificate(self, version: int) -> bytes:
        if version == 2 and self.text() != b"X.509":
            raise BadJks("a JKS store with a certificate that is not X.509")
        return self.sized()


def _parts(sealed: bytes) -> tuple[bytes, bytes, bytes]:
    """Salt, key and check of an EncryptedPrivateKeyInfo."""
    algorithm, rest = _der(_der(sealed, _SEQUENCE)[0], _SEQUENCE)
    if not algorithm.startswith(_SUN_CIPHER):
        raise BadJks("a JKS store with a key that is sealed in an unknown way")
    octets, _ = _der(rest, _OCTETS)
    if len(octets) < 2 * _SUM_BYTES:
        raise BadJks("a JKS store with a key that is cut short")
    return octets[:_SUM_BYTES], octets[_SUM_BYTES:-_SUM_BYTES], octets[-_SUM_BYTES:]


def _der(content: bytes, tag: int) -> tuple[bytes, bytes]:
    """What the value at the start holds, and what follows it."""
    if len(content) < 2 or content[0] != tag:
        raise BadJks("a JKS store with a key that cannot be read")
    size, at = content[1], 2
    if size & 0x80:
        at += size & 0x7F
        size = int.from_bytes(content[2:at], "big")
    if size > len(content) - at:
        raise BadJks("a JKS store with a key that is cut short")
    return content[at : at + size], content[at + size :]


def _key_stream(password: bytes, salt: bytes, size: int) -> bytes:
    return b"".join(_sums(password, salt, -(-size // _SUM_BYTES)))[:size]


def _sums(password: bytes, last: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        last = hashlib.sha1(password + last).digest()
        yield last


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
