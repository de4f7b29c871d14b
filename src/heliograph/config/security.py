"""How a client proves who it is and whom it trusts. Runs anywhere; pickles, and masks its secrets.

Certificates and keys are text in the model, never paths: what the driver read once is what every
executor uses, on machines that may not have the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from heliograph.config.secrets import Secret
from heliograph.config.sections import Section

ClientRole = Literal["admin", "consumer", "producer"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]


class TlsConfig(Section):
    """Whom to trust and what to show; used when the protocol has TLS."""

    ca_pem: str | None = Field(default=None, repr=False)
    """Certificates to trust, PEM; unset trusts what the machine trusts."""
    certificate_pem: str | None = Field(default=None, repr=False)
    """The client's own certificate and its chain, PEM."""
    key_pem: Secret | None = None
    """The client's private key, PEM, possibly encrypted."""
    key_password: Secret | None = None
    """What opens `key_pem`."""
    check_hostname: bool = True
    """Whether the broker's certificate must be for the host that was dialled."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    """TLS versions allowed."""
    cipher_suites: tuple[str, ...] = ()
    """Cipher suites of TLS 1.2 allowed, by OpenSSL names; empty is OpenSSL's choice."""


class AwsSigning(Section):
    """Whose credentials sign tokens for Amazon MSK, and for which region."""

    region: str
    """Where the cluster is."""
    profile: str | None = None
    """A named profile; unset takes the credentials that AWS's own rules find."""
    role_arn: str | None = None
    """A role to assume."""
    role_session_name: str | None = None
    """What the session of that role is called."""


class OAuthConfig(Section):
    """Where a bearer token comes from."""

    token_endpoint_url: str | None = None
    """Client credentials are exchanged here; unset makes unsecured tokens, for development."""
    client_id: str | None = None
    """Who asks for the token."""
    client_secret: Secret | None = None
    """What proves it."""
    scope: str | None = None
    """What the token is asked for."""
    subject: str | None = None
    """Principal of an unsecured token."""
    aws: AwsSigning | None = None
    """Signs tokens here instead of asking for them (AWS_MSK_IAM)."""
    extensions: Mapping[str, str] = Field(default_factory=dict)
    """SASL extensions sent with the token."""


class SaslConfig(Section):
    """Who the client is; used when the protocol has SASL."""

    mechanism: SaslMechanism = "GSSAPI"
    """How the client proves it."""
    username: str | None = None
    """For PLAIN and SCRAM."""
    password: Secret | None = None
    """For PLAIN and SCRAM."""
    kerberos_service_name: str = "kafka"
    """Primary of the brokers' principal, for GSSAPI."""
    kerberos_principal: str | None = None
    """The client's own principal, for GSSAPI."""
    kerberos_keytab: str | None = None
    """Path of the keytab, for GSSAPI."""
    oauth: OAuthConfig | None = None
    """For OAUTHBEARER."""


class SecurityConfig(Section):
    """Protocol, TLS and SASL of one client."""

    protocol: SecurityProtocol = "PLAINTEXT"
    """What is spoken on the connection."""
    tls: TlsConfig = TlsConfig()
    """Used by SSL and SASL_SSL."""
    sasl: SaslConfig = SaslConfig()
    """Used by SASL_PLAINTEXT and SASL_SSL."""

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")
