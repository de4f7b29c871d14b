"""Kafka's `security.protocol`, `ssl.*` and `sasl.*` into the model. Runs on the driver.

Files named by the settings are read here, once; only their text travels further.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from heliograph.config.findings import Findings, Setting
from heliograph.config.mm2.values import BadValue, Reader, choice, choices, words
from heliograph.config.secrets import Secret
from heliograph.config.security import (
    AwsSigning,
    OAuthConfig,
    SaslConfig,
    SaslMechanism,
    SecurityConfig,
    SecurityProtocol,
    TlsConfig,
)
from heliograph.config.tls.ciphers import openssl_ciphers
from heliograph.config.tls.jaas import JaasEntry, MalformedJaas, parse_jaas
from heliograph.config.tls.stores import (
    KeyAndChain,
    UnreadableStore,
    certificates_of_pem,
    key_and_chain,
    key_and_chain_of_pem,
    trusted_certificates,
)

_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": "Krb5LoginModule",
    "AWS_MSK_IAM": "IAMLoginModule",
}
_PROTOCOLS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_OAUTH: Final = "sasl.oauthbearer."
# Tokens by another way than client credentials; Java classes and signed assertions.
_OAUTH_REFUSED: Final = (_OAUTH + "jwt.retriever.class", _OAUTH + "assertion.")
_MSK_IAM: Final = "AWS_MSK_IAM"
_MSK_OAUTH_HANDLER: Final = "IAMOAuthBearerLoginCallbackHandler"
_MSK_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:amazonaws\.com|vpce\.)")
_WITHOUT_LOGIN: Final = ("GSSAPI", "OAUTHBEARER", _MSK_IAM)
"""Mechanisms that need no user and password in `sasl.jaas.config`."""
_OAUTH_HANDLER: Final = "OAuthBearerLoginCallbackHandler"

ReadBytes = Callable[[Path], bytes]


def read_security(
    settings: Mapping[str, Setting],
    read_bytes: ReadBytes,
    findings: Findings,
    servers: Sequence[str] = (),
) -> SecurityConfig:
    """The security of one client; `settings` are its own and inherited ones, by Java name.

    `servers` are the cluster's addresses: those of Amazon MSK name its region.
    """
    return _SecurityReader(settings, read_bytes, findings, servers).run()


class _SecurityReader:
    def __init__(
        self,
        settings: Mapping[str, Setting],
        read_bytes: ReadBytes,
        findings: Findings,
        servers: Sequence[str],
    ) -> None:
        self.settings, self.read_bytes, self.findings = settings, read_bytes, findings
        self.servers = servers

    def run(self) -> SecurityConfig:
        protocol = self._read("security.protocol", choice(get_args(SecurityProtocol)), "PLAINTEXT")
        tls = self._tls() if protocol in ("SSL", "SASL_SSL") else TlsConfig()
        sasl = self._sasl() if protocol in ("SASL_PLAINTEXT", "SASL_SSL") else SaslConfig()
        return SecurityConfig(protocol=protocol, tls=tls, sasl=sasl)

    def _read(self, name: str, read: Reader, default: Any) -> Any:
        setting = self.settings.get(name)
        if setting is None:
            return default
        try:
            return read(setting.value)
        except BadValue as exc:
            self.findings.bad_value(setting, exc)
            return default

    def _secret(self, name: str) -> Secret | None:
        setting = self.settings.get(name)
        return None if setting is None or not setting.value else Secret(setting.value)

    def _tls(self) -> TlsConfig:
        material = self._key_and_chain()
        return TlsConfig(
            ca_pem=self._ca_pem(),
            certificate_pem=material.certificate_pem if material else None,
            key_pem=material.key_pem if material else None,
            key_password=material.key_password if material else None,
            check_hostname=self._read(
                "ssl.endpoint.identification.algorithm", _identification, True
            ),
            protocols=self._read(
                "ssl.enabled.protocols", choices(_PROTOCOLS), ("TLSv1.2", "TLSv1.3")
            ),
            cipher_suites=self._read("ssl.cipher.suites", _ciphers, ()),
        )

    def _ca_pem(self) -> str | None:
        inline = self.settings.get("ssl.truststore.certificates")
        located = self.settings.get("ssl.truststore.location")
        try:
            if inline is not None and inline.value:
                located = inline
                return certificates_of_pem(inline.value)
            content = self._content(located)
            if content is None:
                return None
            return trusted_certificates(content, self._secret("ssl.truststore.password"))
        except UnreadableStore as exc:
            assert located is not None
            self.findings.problem(located, f"is {_named(located)}, {exc}")
            return None

    def _key_and_chain(self) -> KeyAndChain | None:
        key = self.settings.get("ssl.keystore.key")
        chain = self.settings.get("ssl.keystore.certificate.chain")
        located = self.settings.get("ssl.keystore.location")
        try:
            if key is not None and key.value:
                located = key
                if chain is None:
                    raise UnreadableStore("which also needs `ssl.keystore.certificate.chain`")
                return key_and_chain_of_pem(
                    key.value, chain.value, self._secret("ssl.key.password")
                )
            content = self._content(located)
            if content is None:
                return None
            return key_and_chain(
                content, self._secret("ssl.keystore.password"), self._secret("ssl.key.password")
            )
        except UnreadableStore as exc:
            assert located is not None
            self.findings.problem(located, f"is {_named(located)}, {exc}")
            return None

    def _content(self, setting: Setting | None) -> bytes | None:
        if setting is None or not setting.value:
            return None
        try:
            return self.read_bytes(Path(setting.value))
        except OSError as exc:
            why = exc.strerror or type(exc).__name__
            self.findings.problem(setting, f"is {setting.shown()}, which cannot be read: {why}")
            return None

    def _sasl(self) -> SaslConfig:
        given = "sasl.mechanism" in self.settings
        mechanism = self._read("sasl.mechanism", _mechanism, None if given else "GSSAPI")
        if mechanism is None:
            return SaslConfig()  # a problem already; what stands beside it cannot be judged
        entry = self._jaas(mechanism)
        options = entry.options if entry is not None else {}
        if mechanism == _MSK_IAM:
            # MSK takes the same signature as a bearer token.
            return SaslConfig(mechanism="OAUTHBEARER", oauth=self._aws(options))
        service = self.settings.get("sasl.kerberos.service.name")
        password = options.get("password")
        return SaslConfig(
            mechanism=mechanism,
            username=options.get("username"),
            password=None if password is None else Secret(password),
            kerberos_service_name=service.value if service else options.get("serviceName", "kafka"),
            kerberos_principal=options.get("principal"),
            kerberos_keytab=options.get("keyTab"),
            oauth=self._oauth(options) if mechanism == "OAUTHBEARER" else None,
        )

    def _jaas(self, mechanism: str) -> JaasEntry | None:
        setting = self.settings.get("sasl.jaas.config")
        if setting is None:
            # Kerberos may rest on the machine's own ticket, bearer tokens on other settings.
            unresolved = any(
                found.key.endswith("sasl.jaas.config") for found in self.findings.problems
            )
            if mechanism not in _WITHOUT_LOGIN and not unresolved:
                about = self.settings.get("sasl.mechanism") or self.settings["security.protocol"]
                self.findings.problem(about, "also needs `sasl.jaas.config`")
            return None
        try:
            entry = parse_jaas(setting.value)
        except MalformedJaas as exc:
            self.findings.problem(setting, f"is (hidden), {exc}")
            return None
        if entry.module != _MODULES[mechanism]:
            why = f"names {entry.module}, but {mechanism} needs {_MODULES[mechanism]}"
            self.findings.problem(setting, why)
        elif mechanism not in _WITHOUT_LOGIN:
            for option in ("username", "password"):
                if option not in entry.options:
                    self.findings.problem(setting, f"has no `{option}`")
        return entry

    def _aws(self, options: Mapping[str, str]) -> OAuthConfig | None:
        regions = {found[1] for server in self.servers if (found := _MSK_HOST.search(server))}
        # The brokers' own region signs; that of STS says where a role is asked for.
        region = next(iter(regions), None) or options.get("awsStsRegion")
        if region is None:
            about = self.settings["sasl.mechanism"]
            why = (
                "needs `awsStsRegion` in `sasl.jaas.config` where the brokers' names have no region"
            )
            self.findings.problem(about, f"is {about.shown()}, which {why}")
            return None
        return OAuthConfig(
            aws=AwsSigning(
                region=region,
                profile=options.get("awsProfileName"),
                role_arn=options.get("awsRoleArn"),
                role_session_name=options.get("awsRoleSessionName"),
            )
        )

    def _oauth(self, options: Mapping[str, str]) -> OAuthConfig | None:
        handled_by = self._text("sasl.login.callback.handler.class") or ""
        if handled_by.endswith(_MSK_OAUTH_HANDLER):
            return self._aws(options)
        for name, setting in self.settings.items():
            handler = name == "sasl.login.callback.handler.class"
            if name.startswith(_OAUTH_REFUSED) or (
                handler and not setting.value.endswith(_OAUTH_HANDLER)
            ):
                why = "which is not supported; use client credentials at a token endpoint"
                self.findings.problem(setting, f"is {setting.shown()}, {why}")
        endpoint = self._text(_OAUTH + "token.endpoint.url")
        client_id = self._text(_OAUTH + "client.credentials.client.id") or options.get("clientId")
        secret = self._secret(_OAUTH + "client.credentials.client.secret") or (
            Secret(options["clientSecret"]) if "clientSecret" in options else None
        )
        if endpoint is not None and (client_id is None or secret is None):
            why = "also needs a client id and a client secret"
            self.findings.problem(self.settings[_OAUTH + "token.endpoint.url"], why)
        subject = options.get("unsecuredLoginStringClaim_sub")
        if endpoint is None and subject is None:
            about = self.settings["sasl.mechanism"]
            self.findings.problem(about, f"also needs `{_OAUTH}token.endpoint.url`")
        return OAuthConfig(
            token_endpoint_url=endpoint,
            client_id=client_id,
            client_secret=secret,
            scope=self._text(_OAUTH + "scope") or options.get("scope"),
            subject=subject,
            extensions={
                name.removeprefix("extension_"): value
                for name, value in options.items()
                if name.startswith("extension_")
            },
        )

    def _text(self, name: str) -> str | None:
        setting = self.settings.get(name)
        return setting.value if setting is not None and setting.value else None


def _named(setting: Setting) -> str:
    """A path is shown, PEM text is not."""
    return setting.shown() if setting.key.endswith(".location") else "(hidden)"


def _identification(value: str) -> bool:
    if value.lower() not in ("", "https"):
        raise BadValue("neither `https` nor empty, which turns the check off")
    return bool(value)


def _mechanism(value: str) -> object:
    return choice((*get_args(SaslMechanism), _MSK_IAM))(value)


def _ciphers(value: str) -> tuple[str, ...]:
    try:
        return openssl_ciphers(words(value))
    except ValueError as exc:
        raise BadValue(str(exc)) from exc
