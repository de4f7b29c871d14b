"""`tls` and `authentication` of a cluster in Kafka's keys, as Strimzi sets them. Driver only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from heliograph.config.findings import Findings
from heliograph.config.mm2.properties import Property
from heliograph.config.strimzi.parts import Part, Text
from heliograph.config.strimzi.references import MountedSecrets

_MODULES: Final = "org.apache.kafka.common.security."
_BY_PASSWORD: Final = {
    "plain": ("PLAIN", _MODULES + "plain.PlainLoginModule"),
    "scram-sha-256": ("SCRAM-SHA-256", _MODULES + "scram.ScramLoginModule"),
    "scram-sha-512": ("SCRAM-SHA-512", _MODULES + "scram.ScramLoginModule"),
}
_TYPES: Final = ("tls", *_BY_PASSWORD, "oauth", "custom")
_OAUTH: Final = "sasl.oauthbearer."


def security_settings(
    cluster: Part, secrets: MountedSecrets, findings: Findings
) -> Iterator[Property]:
    """Names without the cluster's alias."""
    tls, authentication = cluster.part("tls"), cluster.part("authentication")
    with_sasl = False
    if tls is not None:
        yield from _trust(tls, secrets)
    if authentication is not None:
        kind = authentication.required("type")
        with_sasl = kind is not None and _uses_sasl(kind, authentication)
        if kind is not None:
            yield from _login(kind, authentication, secrets, findings)
    encrypted = "SSL" if tls is not None else "PLAINTEXT"
    protocol = f"SASL_{encrypted}" if with_sasl else encrypted
    line = next((each.line for each in (tls, authentication) if each is not None), cluster.line)
    yield Property(key="security.protocol", value=protocol, line=line)


def _trust(tls: Part, secrets: MountedSecrets) -> Iterator[Property]:
    found = [secrets.certificates(part) for part in tls.parts("trustedCertificates")]
    tls.refuse_the_rest()
    texts = [each[0] for each in found if each is not None]
    if texts:
        yield Property(key="ssl.truststore.certificates", value="\n".join(texts), line=tls.line)


def _uses_sasl(kind: Text, authentication: Part) -> bool:
    if kind.value == "custom":
        sasl = authentication.text("sasl")
        return sasl is not None and sasl.value == "true"
    return kind.value != "tls"


def _login(
    kind: Text, authentication: Part, secrets: MountedSecrets, findings: Findings
) -> Iterator[Property]:
    if kind.value == "tls":
        yield from _certificate(authentication, secrets)
    elif kind.value in _BY_PASSWORD:
        yield from _password(kind, authentication, secrets)
    elif kind.value == "oauth":
        yield from _oauth(kind, authentication, secrets)
    elif kind.value == "custom":
        yield from authentication.settings("config")
    else:
        known = ", ".join(f"`{name}`" for name in _TYPES)
        findings.problem_at(kind.path, f"is `{kind.value}`, not one of {known}", line=kind.line)
        return
    authentication.refuse_the_rest()


def _certificate(authentication: Part, secrets: MountedSecrets) -> Iterator[Property]:
    held = authentication.required_part("certificateAndKey")
    if held is None:
        return
    # Both are asked for of the same part, which then has no other field.
    held.pass_over("key")
    chain = secrets.reference(held, "certificate")
    key = secrets.reference(held, "key")
    for name, found in (("ssl.keystore.certificate.chain", chain), ("ssl.keystore.key", key)):
        if found is not None:
            yield Property(key=name, value=found[0], line=found[1])


def _password(kind: Text, authentication: Part, secrets: MountedSecrets) -> Iterator[Property]:
    mechanism, module = _BY_PASSWORD[kind.value]
    user, held = authentication.required("username"), authentication.required_part("passwordSecret")
    if held is None:
        return
    password = secrets.reference(held, "password")
    if user is None or password is None:
        return
    named = user.value.replace("\\", "\\\\").replace('"', '\\"')
    yield Property(key="sasl.mechanism", value=mechanism, line=kind.line)
    yield Property(
        key="sasl.jaas.config",
        value=f'{module} required username="{named}" password="{password[0]}";',
        line=password[1],
    )


def _oauth(kind: Text, authentication: Part, secrets: MountedSecrets) -> Iterator[Property]:
    """Of Strimzi's own login, what Kafka's has too: a client with a secret. Other fields are
    refused."""
    yield Property(key="sasl.mechanism", value="OAUTHBEARER", line=kind.line)
    module = _MODULES + "oauthbearer.OAuthBearerLoginModule"
    yield Property(key="sasl.jaas.config", value=f"{module} required;", line=kind.line)
    for field, key in (
        ("tokenEndpointUri", "token.endpoint.url"),
        ("clientId", "client.credentials.client.id"),
    ):
        text = authentication.required(field)
        if text is not None:
            yield Property(key=_OAUTH + key, value=text.value, line=text.line)
    scope, held = authentication.text("scope"), authentication.required_part("clientSecret")
    if scope is not None:
        yield Property(key=_OAUTH + "scope", value=scope.value, line=scope.line)
    if held is None:
        return
    secret = secrets.reference(held, "key")
    if secret is not None:
        key = _OAUTH + "client.credentials.client.secret"
        yield Property(key=key, value=secret[0], line=secret[1])
