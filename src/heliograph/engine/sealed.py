"""Settings with credentials on a link that is authentic but not secret. Runs on both sides.

The key comes from the token, which Spark brings to a slot together with the first settings: who
knows one knows the other. Nobody without the token can read them, or make a slot open others.
"""

from __future__ import annotations

import base64
import hmac
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from heliograph.errors import LinkError
from heliograph.model import ClusterAlias, FlowId

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

    from heliograph.config.schema import ClusterConfig
    from heliograph.copy.flow import FetchLimits

_LABEL: Final = b"slot settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSettings:
    """What a slot carries by, and may be told anew while it does."""

    clusters: Mapping[ClusterAlias, ClusterConfig] = field(repr=False)
    limits: Mapping[FlowId, FetchLimits] = field(default_factory=dict)
    bytes_max: int


def seal(settings: SlotSettings, token: bytes) -> str:
    return _cipher(token).encrypt(pickle.dumps(settings)).decode()


def unseal(sealed: str, token: bytes) -> SlotSettings:
    """Raises `LinkError` for what nobody with the token has sealed."""
    from cryptography.fernet import InvalidToken

    try:
        opened = _cipher(token).decrypt(sealed.encode())
    except InvalidToken as exc:
        raise LinkError("settings that this link's driver has not sealed") from exc
    found = pickle.loads(opened)
    if not isinstance(found, SlotSettings):
        raise LinkError("sealed, and no settings")
    return found


def _cipher(token: bytes) -> Fernet:
    # Only a slot whose settings change needs it; the others start without.
    from cryptography.fernet import Fernet

    return Fernet(base64.urlsafe_b64encode(hmac.digest(token, _LABEL, "sha256")))
