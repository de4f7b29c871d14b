"""Bearer tokens for SASL/OAUTHBEARER: asked for, signed for AWS, or unsecured. Runs anywhere.

Guarantee: a token is asked for once and used by every connection until four fifths of its life are
over. Neither the client's secret nor a token is ever part of an error.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider

from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClusterConfig
from heliograph.config.security import AwsSigning, OAuthConfig
from heliograph.errors import BrokerUnreachable, ConfigError, NotAuthorised

_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 1024 * 1024
_UNSECURED_LIFE_S: Final = 3_600
_DEFAULT_LIFE_S: Final = 300
_USED_SHARE: Final = 0.8
_SIGNER: Final = "aws_msk_iam_sasl_signer"


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    text: str = field(repr=False)
    life_s: float


class BearerTokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka ships no types
    """What aiokafka asks for a token before each handshake."""

    def __init__(self, config: OAuthConfig) -> None:
        self._config = config
        self._token: str | None = None
        self._fresh_until_s = 0.0
        self._asking = asyncio.Lock()

    async def token(self) -> str:
        async with self._asking:
            if self._token is None or monotonic_s() >= self._fresh_until_s:
                issued = await asyncio.to_thread(issue_token, self._config)
                self._token = issued.text
                self._fresh_until_s = monotonic_s() + issued.life_s * _USED_SHARE
            return self._token

    def extensions(self) -> dict[str, str]:
        return dict(self._config.extensions)


def issue_token(config: OAuthConfig) -> BearerToken:
    """A new token; blocks for at most ten seconds."""
    if config.aws is not None:
        return _signed_for_aws(config.aws)
    if config.token_endpoint_url is None:
        return _unsecured(config.subject or "")
    if not config.token_endpoint_url.startswith(("https://", "http://")):
        raise ConfigError("sasl.oauthbearer.token.endpoint.url", ("is not a web address",))
    return _asked_for(config, config.token_endpoint_url)


def require_signer(clusters: Iterable[ClusterConfig]) -> None:
    """Raise `ConfigError` where tokens are to be signed for AWS and nothing here can."""
    for cluster in clusters:
        for security in (cluster.security, *cluster.role_security.values()):
            oauth = security.sasl.oauth
            if oauth is not None and oauth.aws is not None:
                _signer()


def _signed_for_aws(aws: AwsSigning) -> BearerToken:
    """A URL that the credentials have signed, as Amazon's Java library makes it."""
    signer = _signer()
    try:
        if aws.role_arn is not None:
            named = (
                {} if aws.role_session_name is None else {"sts_session_name": aws.role_session_name}
            )
            signed = signer.generate_auth_token_from_role_arn(aws.region, aws.role_arn, **named)
        elif aws.profile is not None:
            signed = signer.generate_auth_token_from_profile(aws.region, aws.profile)
        else:
            signed = signer.generate_auth_token(aws.region)
        text, expires_ms = signed
        return BearerToken(text=str(text), life_s=max(0.0, (expires_ms - now_ms()) / 1000))
    except Exception as exc:
        # Whatever AWS's libraries raise: credentials of a machine may be back in a moment.
        why = f"{type(exc).__name__}: {exc}"
        raise BrokerUnreachable(f"no token could be signed for AWS_MSK_IAM: {why}") from exc


def _signer() -> Any:
    try:
        return importlib.import_module(_SIGNER).MSKAuthTokenProvider
    except ImportError:
        why = (
            "the Python package `aws-msk-iam-sasl-signer-python` is missing; driver and executors "
            "need it: install heliograph[msk]"
        )
        raise ConfigError("sasl.mechanism = AWS_MSK_IAM", (why,)) from None


def _unsecured(subject: str) -> BearerToken:
    """What Java's development handler makes: a JWT with the algorithm `none` (RFC 7515)."""
    now_s = now_ms() / 1000
    claims = {"sub": subject, "iat": now_s, "exp": now_s + _UNSECURED_LIFE_S}
    parts = [_base64url(json.dumps(part).encode()) for part in ({"alg": "none"}, claims)]
    return BearerToken(text=".".join([*parts, ""]), life_s=_UNSECURED_LIFE_S)


def _asked_for(config: OAuthConfig, url: str) -> BearerToken:
    form = {"grant_type": "client_credentials"}
    if config.scope:
        form["scope"] = config.scope
    secret = config.client_secret.reveal() if config.client_secret is not None else ""
    basic = base64.b64encode(f"{config.client_id}:{secret}".encode()).decode()
    request = urllib.request.Request(
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {basic}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            content = answer.read(_ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as exc:
        exc.close()
        if exc.code in (400, 401, 403):
            raise NotAuthorised(f"the token endpoint refused the client: HTTP {exc.code}") from None
        raise BrokerUnreachable(f"the token endpoint answered HTTP {exc.code}") from None
    except OSError as exc:
        why = getattr(exc, "reason", None) or exc
        raise BrokerUnreachable(f"the token endpoint did not answer: {why}") from exc
    return _issued(content)


def _issued(content: bytes) -> BearerToken:
    try:
        answer: Any = json.loads(content)
        text = answer["access_token"]
        life_s = float(answer.get("expires_in", _DEFAULT_LIFE_S))
    except (ValueError, TypeError, KeyError, AttributeError):
        # Not chained: the parser's error quotes the answer, and a token may be in it.
        raise BrokerUnreachable("the token endpoint answered without an access_token") from None
    if not isinstance(text, str):
        raise BrokerUnreachable("the token endpoint answered without an access_token")
    return BearerToken(text=text, life_s=life_s)


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
