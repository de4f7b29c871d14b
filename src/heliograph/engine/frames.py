"""Authenticated frames on a TCP stream: the link's lowest layer. Runs on both sides.

    bytes  field
        4  length of the body, at most FRAME_BYTES_MAX
       32  HMAC-SHA256(direction key, counter ++ length ++ body)
        n  body

Both sides prove that they know the token before anything else is said, each over the other's fresh
nonce; keys of both directions come from the two nonces, so nothing recorded on one connection is
valid on another, and the counter lets nothing be repeated, dropped or reordered within one.
The link is authentic, not secret: credentials travel on it only sealed (`engine.sealed`).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import struct
from typing import Final

from heliograph.errors import LinkError

FRAME_BYTES_MAX: Final = 16 << 20
UNSENT_BYTES_MAX: Final = 64 << 20
"""A peer that does not read for so long that this much waits for it is cut off."""

_MAGIC: Final = b"HELIO-1\n"
_NONCE_BYTES: Final = 32
_MAC_BYTES: Final = hashlib.sha256().digest_size
_LENGTH: Final = struct.Struct(">I")
_COUNTER: Final = struct.Struct(">Q")


class FrameStream:
    """One authenticated connection; used by one event loop only."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        send_key: bytes,
        receive_key: bytes,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._send_key, self._receive_key = send_key, receive_key
        self._sent_frames = self._received_frames = 0

    def send(self, body: bytes) -> None:
        """Queue one frame; a peer that has stopped reading is cut off instead of filling memory."""
        if len(body) > FRAME_BYTES_MAX:
            raise LinkError(f"frame of {len(body)} bytes, at most {FRAME_BYTES_MAX} are allowed")
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._writer.transport.abort()
            return
        length = _LENGTH.pack(len(body))
        mac = _mac(self._send_key, self._sent_frames, length, body)
        self._sent_frames += 1
        self._writer.write(b"".join((length, mac, body)))

    async def receive(self) -> bytes:
        """The next body. Raises `LinkError` for a frame that is too long or not authentic."""
        head = await self._reader.readexactly(_LENGTH.size + _MAC_BYTES)
        length, mac = head[: _LENGTH.size], head[_LENGTH.size :]
        (size_bytes,) = _LENGTH.unpack(length)
        if size_bytes > FRAME_BYTES_MAX:
            raise LinkError(f"frame of {size_bytes} bytes, at most {FRAME_BYTES_MAX} are allowed")
        body = await self._reader.readexactly(size_bytes)
        if not hmac.compare_digest(
            mac, _mac(self._receive_key, self._received_frames, length, body)
        ):
            raise LinkError("frame fails its authentication")
        self._received_frames += 1
        return body

    async def flush(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        """What is queued is still sent."""
        self._writer.close()


async def welcome(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes
) -> FrameStream:
    """The driver's half of the handshake. Raises `LinkError` for a peer without the token."""
    opening = await reader.readexactly(len(_MAGIC) + _NONCE_BYTES)
    if not opening.startswith(_MAGIC):
        raise LinkError("the peer does not speak this link")
    nonces = opening[len(_MAGIC) :] + secrets.token_bytes(_NONCE_BYTES)
    writer.write(nonces[_NONCE_BYTES:] + _derive(token, b"driver", nonces))
    proof = await reader.readexactly(_MAC_BYTES)
    if not hmac.compare_digest(proof, _derive(token, b"slot", nonces)):
        raise LinkError("the peer does not know the token")
    return FrameStream(
        reader,
        writer,
        send_key=_derive(token, b"down", nonces),
        receive_key=_derive(token, b"up", nonces),
    )


async def greet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes
) -> FrameStream:
    """The slot's half of the handshake. Raises `LinkError` for a driver without the token."""
    own = secrets.token_bytes(_NONCE_BYTES)
    writer.write(_MAGIC + own)
    answer = await reader.readexactly(_NONCE_BYTES + _MAC_BYTES)
    nonces = own + answer[:_NONCE_BYTES]
    if not hmac.compare_digest(answer[_NONCE_BYTES:], _derive(token, b"driver", nonces)):
        raise LinkError("the driver does not know the token")
    writer.write(_derive(token, b"slot", nonces))
    return FrameStream(
        reader,
        writer,
        send_key=_derive(token, b"up", nonces),
        receive_key=_derive(token, b"down", nonces),
    )


def _derive(token: bytes, role: bytes, nonces: bytes) -> bytes:
    return hmac.digest(token, role + b"\0" + nonces, "sha256")


def _mac(key: bytes, counter: int, length: bytes, body: bytes) -> bytes:
    return hmac.digest(key, _COUNTER.pack(counter) + length + body, "sha256")
