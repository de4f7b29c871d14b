"""The schema registry beside a cluster, and what a flow copies between two. Runs anywhere; pickles.

Names follow those of the Java serializers: what stands after `schema.registry.` is what a client of
the registry is configured by.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import Field

from heliograph.config.hook_values import bearer_token, require_url
from heliograph.config.keys import INT_MAX, Key, Own, Seconds
from heliograph.config.mm2.values import BadValue, Reader, regexes, text, words
from heliograph.config.secrets import Secret
from heliograph.config.sections import Section
from heliograph.config.security import TlsConfig

REGISTRY_TLS_PREFIX: Final = "schema.registry."
_TLS_KEYS: Final = {
    "ssl.truststore.certificates": "Certificates to trust, PEM text.",
    "ssl.truststore.location": "File of certificates to trust, PEM, PKCS12 or JKS.",
    "ssl.truststore.password": "Opens a PKCS12 truststore, checks a JKS one.",
    "ssl.keystore.key": "The client's private key, PEM text.",
    "ssl.keystore.certificate.chain": "The client's certificates, PEM text.",
    "ssl.keystore.location": "File with key and certificates, PEM, PKCS12 or JKS.",
    "ssl.keystore.password": "Opens a PKCS12 or JKS keystore.",
    "ssl.key.password": "Opens an encrypted key.",
    "ssl.endpoint.identification.algorithm": "Empty turns the check of the host name off.",
}
REGISTRY_TLS_KEYS: Final = tuple(
    Key(
        name=f"{REGISTRY_TLS_PREFIX}{name}",
        read=text,
        default=None,
        said=meaning,
        top=False,
        own=True,
    )
    for name, meaning in _TLS_KEYS.items()
)
"""Read together, as those of a Kafka client are: no field holds one alone."""


def _addresses(value: str) -> tuple[str, ...]:
    return registry_addresses(words(value), "schema.registry.basic.auth.user.info")


def registry_addresses(found: Iterable[str], key_of_user: str) -> tuple[str, ...]:
    """Of one registry; a password would be shown wherever an address is."""
    made: list[str] = []
    for address in found:
        parts = require_url(address, key_of_user)
        if parts.query or parts.fragment:
            raise BadValue("a URL with more than host and path")
        made.append(address.rstrip("/"))
    return tuple(made)


def registry_user(value: str) -> Secret:
    """`user:password`."""
    user, colon, _ = value.partition(":")
    if not user or not colon or any(ord(each) < 32 for each in value):
        raise BadValue("not `user:password`")
    return Secret(value)


def _subject_template(value: str) -> str:
    if value == TOPICS_RENAMED or value.count("{subject}") == 1:
        return value
    raise BadValue("neither `topics` nor a text with `{subject}` in it")


TOPICS_RENAMED: Final = "topics"
SAME_SUBJECT: Final = "{subject}"
_READ_ADDRESSES: Final[Reader] = _addresses


class RegistryConfig(Section):
    """How the schema registry of a cluster is reached."""

    urls: Annotated[tuple[str, ...], Own("schema.registry.url", _READ_ADDRESSES, top=False)] = ()
    """Addresses of the cluster's schema registry, tried in this order; unset, it has none."""
    user_info: Annotated[
        Secret | None, Own("schema.registry.basic.auth.user.info", registry_user, top=False)
    ] = None
    """`user:password` for the registry."""
    token: Annotated[
        Secret | None, Own("schema.registry.bearer.auth.token", bearer_token, top=False)
    ] = None
    """Bearer token for the registry, in place of a user."""
    timeout_ms: Annotated[int, Own("schema.registry.timeout.ms", top=False)] = Field(
        default=10_000, ge=100, le=600_000
    )
    """Longest time for one answer of the registry."""
    tls: TlsConfig = TlsConfig()
    """Of `https` addresses."""

    @property
    def is_set(self) -> bool:
        return bool(self.urls)


class SchemasConfig(Section):
    """Which schemas go along with a flow, and how."""

    enabled: Annotated[bool, Own("schemas.enabled")] = False
    """Whether schemas are copied from the source's registry to the target's."""
    include: Annotated[tuple[str, ...], Own("schemas.subjects", regexes)] = (".*",)
    """Regexes of subjects to copy; one of them must match the whole name."""
    exclude: Annotated[tuple[str, ...], Own("schemas.subjects.exclude", regexes)] = ()
    """Regexes of subjects that are not copied; stronger than `schemas.subjects`."""
    rename: Annotated[str, Own("schemas.subjects.rename", _subject_template)] = SAME_SUBJECT
    """A subject's name on the target; `topics` renames `<topic>-key` and `-value` as topics are."""
    versions: Annotated[Literal["all", "latest"], Own("schemas.versions")] = "all"
    """Which versions of a subject are copied."""
    ids: Annotated[Literal["map", "keep"], Own("schemas.ids")] = "map"
    """`map` lets the target choose ids; `keep` imports schemas with the source's ids."""
    interval_s: Annotated[Seconds, Own("schemas.interval.seconds")] = 60
    """Time between two comparisons of the registries."""


class QuotasSync(Section):
    """Client quotas, which are of a cluster and not of its topics."""

    enabled: Annotated[bool, Own("sync.client.quotas.enabled")] = False
    """Whether client quotas of the source are kept on the target."""
    interval_s: Annotated[int, Own("sync.client.quotas.interval.seconds")] = Field(
        default=600, ge=1, le=INT_MAX
    )
    """Time between two comparisons of client quotas."""
