"""Kafka's TLS and SASL settings arrive in the model, files read, secrets hidden."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from heliograph.config.load import load_config
from heliograph.config.secrets import Secret
from heliograph.config.security import AwsSigning, SecurityConfig
from heliograph.config.tls.jaas import MalformedJaas, parse_jaas
from heliograph.model import ClusterAlias
from tests.unit.config.texts import TWO_CLUSTERS, config_of, problems_with, with_lines

A = ClusterAlias("A")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

JCEKS_REFUSED = "a JCEKS store, which only Java reads; `keytool -importkeystore` makes it PKCS12"

CA = trustme.CA()
CA_PEM = CA.cert_pem.bytes().decode()
CLIENT = CA.issue_cert("mirror@heliograph.test")
KEY_PEM = CLIENT.private_key_pem.bytes().decode()
CERT_PEM = CLIENT.cert_chain_pems[0].bytes().decode()


def security_of(lines: str, files: dict[str, bytes] | None = None) -> SecurityConfig:
    return with_lines(lines, files).clusters[A].security


def encrypted_key(password: bytes) -> str:
    key = load_pem_private_key(KEY_PEM.encode(), None)
    return key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    ).decode()


def client_pkcs12(password: bytes) -> bytes:
    key = load_pem_private_key(KEY_PEM.encode(), None)
    cert, issuer = (load_pem_x509_certificate(pem.encode()) for pem in (CERT_PEM, CA_PEM))
    return pkcs12.serialize_key_and_certificates(
        b"mirror",
        key,  # type: ignore[arg-type]
        cert,
        [issuer],
        BestAvailableEncryption(password) if password else NoEncryption(),
    )


def in_one_line(pem: str) -> str:
    """As PEM is often put into a properties file."""
    return pem.strip().replace("\n", " ")


def test_a_roles_own_setting_beats_the_clusters_which_beats_the_tops() -> None:
    lines = (
        "security.protocol = SASL_PLAINTEXT\nsasl.mechanism = PLAIN\n"
        f'sasl.jaas.config = {PLAIN} required username="top" password="1";\n'
        f'A.sasl.jaas.config = {PLAIN} required username="cluster" password="2";\n'
        f'A.consumer.sasl.jaas.config = {PLAIN} required username="role" password="3";\n'
    )

    clusters = with_lines(lines).clusters

    users = [clusters[A].security_of(role).sasl.username for role in ("consumer", "admin", None)]
    assert users == ["role", "cluster", "cluster"]
    assert clusters[ClusterAlias("B")].security_of("consumer").sasl.username == "top"


def test_jaas_options_are_read_with_either_quote_or_none_and_with_escapes() -> None:
    entry = parse_jaas(f'{SCRAM}  required\n  username="a\\"b;c" password=\'p=w\' tokenauth=true;')

    assert entry.module == "ScramLoginModule"
    assert entry.options == {"username": 'a"b;c', "password": "p=w", "tokenauth": "true"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("username=hunter2", 'not `LoginModule required option="value" …;`'),
        (f'{PLAIN} required username="hunter2"', "not ended by `;`"),
        (f'{PLAIN} required username "hunter2";', "an option without `=` and a value"),
        (f"{PLAIN} required username=;", "an option without `=` and a value"),
        (f'{PLAIN} required username="hunter2;', "a quote that is not closed"),
        (f"{PLAIN} required a=b; {PLAIN} required c=d;", "more than one login module"),
    ],
)
def test_a_malformed_jaas_entry_is_refused_without_quoting_it(text: str, why: str) -> None:
    with pytest.raises(MalformedJaas) as caught:
        parse_jaas(text)

    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("mechanism", "jaas", "sentence"),
    [
        ("PLAIN", "hunter2", 'is (hidden), not `LoginModule required option="value" …;`'),
        (
            "PLAIN",
            f"{SCRAM} required password=hunter2;",
            "names ScramLoginModule, but PLAIN needs PlainLoginModule",
        ),
        ("PLAIN", f"{PLAIN} required password=hunter2;", "has no `username`"),
        ("SCRAM-SHA-256", f"{SCRAM} required username=hunter2;", "has no `password`"),
    ],
)
def test_a_wrong_jaas_entry_is_reported_without_quoting_it(
    mechanism: str, jaas: str, sentence: str
) -> None:
    lines = (
        f"A.security.protocol = SASL_SSL\nA.sasl.mechanism = {mechanism}\n"
        f"A.sasl.jaas.config = {jaas}\n"
    )

    problems = problems_with(lines)

    assert problems == [f"line 7  A.sasl.jaas.config: {sentence}"]


def test_sasl_without_credentials_is_reported() -> None:
    lines = "A.security.protocol = SASL_SSL\nA.sasl.mechanism = PLAIN\n"

    assert problems_with(lines) == ["line 6  A.sasl.mechanism: also needs `sasl.jaas.config`"]


def test_an_unknown_mechanism_is_reported() -> None:
    lines = "A.security.protocol = SASL_SSL\nA.sasl.mechanism = DIGEST-MD5\n"

    assert problems_with(lines) == [
        "line 6  A.sasl.mechanism: is `DIGEST-MD5`, not one of "
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM"
    ]


MSK_HOST = "b-1.orders.c1.kafka.eu-west-1.amazonaws.com:9098"
IAM = "software.amazon.msk.auth.iam."


@pytest.mark.parametrize(
    "lines",
    [
        f"A.sasl.mechanism = AWS_MSK_IAM\nA.sasl.jaas.config = {IAM}IAMLoginModule required;\n",
        "A.sasl.mechanism = AWS_MSK_IAM\n",
        f"A.sasl.mechanism = OAUTHBEARER\nA.sasl.jaas.config = {OAUTH} required;\n"
        f"A.sasl.login.callback.handler.class = {IAM}IAMOAuthBearerLoginCallbackHandler\n",
    ],
)
def test_amazons_mechanism_is_a_bearer_token_that_is_signed_for_the_brokers_region(
    lines: str,
) -> None:
    text = TWO_CLUSTERS.replace("a1:9092, a2:9092", MSK_HOST)

    sasl = config_of(f"{text}A.security.protocol = SASL_SSL\n{lines}").clusters[A].security.sasl

    assert sasl.mechanism == "OAUTHBEARER"
    assert sasl.oauth is not None
    assert sasl.oauth.aws == AwsSigning(region="eu-west-1")


def test_options_of_amazons_login_are_read() -> None:
    options = 'awsRoleArn="arn:r" awsRoleSessionName="s" awsProfileName="p" awsStsRegion="eu-1"'
    lines = (
        "A.security.protocol = SASL_SSL\nA.sasl.mechanism = AWS_MSK_IAM\n"
        f"A.sasl.jaas.config = {IAM}IAMLoginModule required {options};\n"
    )

    oauth = security_of(lines).sasl.oauth

    assert oauth is not None
    assert oauth.aws == AwsSigning(
        region="eu-1", profile="p", role_arn="arn:r", role_session_name="s"
    )


def test_tokens_are_signed_for_the_region_of_the_brokers_not_for_that_of_sts() -> None:
    text = TWO_CLUSTERS.replace("a1:9092, a2:9092", MSK_HOST)
    lines = (
        "A.security.protocol = SASL_SSL\nA.sasl.mechanism = AWS_MSK_IAM\n"
        f'A.sasl.jaas.config = {IAM}IAMLoginModule required awsStsRegion="us-east-1";\n'
    )

    oauth = config_of(text + lines).clusters[A].security.sasl.oauth

    assert oauth is not None
    assert oauth.aws == AwsSigning(region="eu-west-1")


def test_amazons_mechanism_without_a_region_is_reported() -> None:
    assert problems_with("A.security.protocol = SASL_SSL\nA.sasl.mechanism = AWS_MSK_IAM\n") == [
        "line 6  A.sasl.mechanism: is `AWS_MSK_IAM`, which needs `awsStsRegion` in "
        "`sasl.jaas.config` where the brokers' names have no region"
    ]


def test_kerberos_options_are_read() -> None:
    lines = (
        "A.security.protocol = SASL_PLAINTEXT\n"
        "A.sasl.jaas.config = com.sun.security.auth.module.Krb5LoginModule required "
        'keyTab="/etc/mirror.keytab" principal="mirror@EXAMPLE" serviceName="brokers";\n'
    )

    sasl = security_of(lines).sasl

    assert sasl.mechanism == "GSSAPI"
    assert sasl.kerberos_service_name == "brokers"
    assert (sasl.kerberos_principal, sasl.kerberos_keytab) == (
        "mirror@EXAMPLE",
        "/etc/mirror.keytab",
    )


def test_client_credentials_for_bearer_tokens_are_read() -> None:
    lines = (
        "A.security.protocol = SASL_SSL\nA.sasl.mechanism = OAUTHBEARER\n"
        "A.sasl.oauthbearer.token.endpoint.url = https://idp/token\n"
        f'A.sasl.jaas.config = {OAUTH} required clientId="mirror" clientSecret="hunter2" '
        'scope="kafka" extension_cluster="lkc-1";\n'
    )

    oauth = security_of(lines).sasl.oauth

    assert oauth is not None
    assert (oauth.client_id, oauth.scope) == ("mirror", "kafka")
    assert oauth.client_secret == Secret("hunter2")
    assert oauth.extensions == {"cluster": "lkc-1"}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "line 6  A.sasl.mechanism: also needs `sasl.oauthbearer.token.endpoint.url`"),
        (
            "A.sasl.oauthbearer.token.endpoint.url = https://idp/token",
            "line 7  A.sasl.oauthbearer.token.endpoint.url: "
            "also needs a client id and a client secret",
        ),
    ],
)
def test_bearer_tokens_without_a_way_to_get_one_are_reported(line: str, problem: str) -> None:
    lines = f"A.security.protocol = SASL_SSL\nA.sasl.mechanism = OAUTHBEARER\n{line}"

    assert problems_with(lines) == [problem]


def test_a_java_class_that_makes_tokens_is_reported() -> None:
    lines = (
        "A.security.protocol = SASL_SSL\nA.sasl.mechanism = OAUTHBEARER\n"
        "A.sasl.login.callback.handler.class = com.example.Handler\n"
        f"A.sasl.jaas.config = {OAUTH} required unsecuredLoginStringClaim_sub=mirror;\n"
    )

    assert problems_with(lines) == [
        "line 7  A.sasl.login.callback.handler.class: is `com.example.Handler`, "
        "which is not supported; use client credentials at a token endpoint"
    ]


def test_pem_text_in_the_file_itself_is_read_with_blanks_for_line_ends() -> None:
    lines = (
        "A.security.protocol = SSL\n"
        f"A.ssl.truststore.certificates = {in_one_line(CA_PEM)}\n"
        f"A.ssl.keystore.key = {in_one_line(encrypted_key(b'hunter2'))}\n"
        f"A.ssl.keystore.certificate.chain = {in_one_line(CERT_PEM)}\n"
        "A.ssl.key.password = hunter2\n"
    )

    tls = security_of(lines).tls

    assert tls.ca_pem == CA_PEM
    assert tls.certificate_pem == CERT_PEM
    assert tls.key_pem is not None
    assert load_pem_private_key(tls.key_pem.reveal().encode(), b"hunter2") is not None
    assert tls.key_password == Secret("hunter2")
    assert tls.check_hostname


def test_pem_and_pkcs12_files_are_read_whatever_type_is_declared() -> None:
    files = {"/trust.pem": CA_PEM.encode(), "/key.p12": client_pkcs12(b"hunter2")}
    lines = (
        "A.security.protocol = SSL\nA.ssl.truststore.location = /trust.pem\n"
        "A.ssl.keystore.location = /key.p12\nA.ssl.keystore.type = JKS\n"
        "A.ssl.keystore.password = hunter2\n"
    )

    tls = security_of(lines, files).tls

    assert tls.ca_pem == CA_PEM
    assert tls.certificate_pem == CERT_PEM + CA_PEM
    assert tls.key_pem is not None
    assert load_pem_private_key(tls.key_pem.reveal().encode(), None) is not None
    assert tls.key_password is None


def test_a_pem_file_with_key_and_chain_together_is_a_keystore() -> None:
    files = {"/both.pem": (KEY_PEM + CERT_PEM).encode()}
    lines = "A.security.protocol = SSL\nA.ssl.keystore.location = /both.pem\n"

    tls = security_of(lines, files).tls

    assert tls.certificate_pem == CERT_PEM
    assert tls.key_pem is not None


def test_a_truststore_made_by_keytool_is_read(tmp_path: Path) -> None:
    CA.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    store = tmp_path / "trust.p12"
    subprocess.run(
        [
            "keytool",
            "-importcert",
            "-noprompt",
            "-alias",
            "ca",
            "-file",
            tmp_path / "ca.pem",
            "-keystore",
            store,
            "-storetype",
            "PKCS12",
            "-storepass",
            "hunter2",
        ],
        check=True,
        capture_output=True,
    )
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"{TWO_CLUSTERS}A.security.protocol = SSL\nA.ssl.truststore.location = {store}\n"
        "A.ssl.truststore.password = hunter2\n"
    )

    assert load_config(path).clusters[A].security.tls.ca_pem == CA_PEM


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "A.ssl.truststore.location = /none",
            "is `/none`, which cannot be read: No such file or directory",
        ),
        (
            "A.ssl.truststore.location = /jceks",
            f"is `/jceks`, {JCEKS_REFUSED}",
        ),
        (
            "A.ssl.keystore.location = /jceks",
            f"is `/jceks`, {JCEKS_REFUSED}",
        ),
        (
            "A.ssl.truststore.location = /p12",
            "is `/p12`, neither PEM nor a PKCS12 store this password opens",
        ),
        (
            "A.ssl.keystore.location = /p12",
            "is `/p12`, neither PEM nor a PKCS12 store this password opens",
        ),
        ("A.ssl.truststore.location = /key", "is `/key`, PEM without a certificate"),
        ("A.ssl.keystore.location = /ca", "is `/ca`, PEM without a private key"),
        (
            "A.ssl.keystore.location = /locked",
            "is `/locked`, PEM with an encrypted key this password does not open",
        ),
        ("A.ssl.truststore.certificates = hunter2", "is (hidden), PEM without a certificate"),
        (
            "A.ssl.keystore.key = hunter2",
            "is (hidden), which also needs `ssl.keystore.certificate.chain`",
        ),
        (
            "A.ssl.endpoint.identification.algorithm = dns",
            "is `dns`, neither `https` nor empty, which turns the check off",
        ),
        (
            "A.ssl.enabled.protocols = TLSv1.2, SSLv3",
            "is `TLSv1.2, SSLv3`, not one of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3",
        ),
        (
            "A.ssl.cipher.suites = TLS_NONE_WITH_X",
            "is `TLS_NONE_WITH_X`, where `TLS_NONE_WITH_X` is unknown to OpenSSL",
        ),
    ],
)
def test_stores_and_tls_settings_that_cannot_be_used_are_reported(line: str, sentence: str) -> None:
    files = {
        "/jceks": b"\xce\xce\xce\xce\x00\x00\x00\x02",
        "/p12": client_pkcs12(b"hunter2"),
        "/key": KEY_PEM.encode(),
        "/ca": CA_PEM.encode(),
        "/locked": (encrypted_key(b"hunter2") + CERT_PEM).encode(),
    }

    problems = problems_with(f"{line}\nA.security.protocol = SSL\n", files)

    assert problems == [f"line 5  {line.split(' ')[0]}: {sentence}"]


def test_stores_are_not_opened_where_nothing_uses_them() -> None:
    assert security_of("A.ssl.truststore.location = /none\n").protocol == "PLAINTEXT"


def test_an_empty_identification_algorithm_turns_the_host_check_off() -> None:
    lines = "A.security.protocol = SSL\nA.ssl.endpoint.identification.algorithm =\n"

    assert not security_of(lines).tls.check_hostname


def test_java_names_of_cipher_suites_become_openssls() -> None:
    lines = (
        "A.security.protocol = SSL\nA.ssl.cipher.suites = TLS_AES_256_GCM_SHA384, "
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_256_CBC_SHA256, "
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256\n"
    )

    assert security_of(lines).tls.cipher_suites == (
        "ECDHE-RSA-AES128-GCM-SHA256",
        "AES256-SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    )
