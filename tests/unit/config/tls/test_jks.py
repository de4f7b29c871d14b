"""JKS stores that `keytool` of Java 17 made, read without Java.

    keytool -genkeypair -alias client -keyalg EC -groupname secp256r1 -dname CN=client \
        -validity 36500 -storetype JKS -keystore key.jks -storepass store-pw -keypass key-pw
    keytool -exportcert -alias client -keystore key.jks -storepass store-pw -file c.der
    keytool -importcert -noprompt -alias ca -file c.der -storetype JKS -keystore trust.jks \
        -storepass trust-pw
"""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from heliograph.config.secrets import Secret
from heliograph.config.tls.stores import UnreadableStore, key_and_chain, trusted_certificates
from tests.unit.config.texts import problems_with

KEY_STORE = base64.b64decode("""
/u3+7QAAAAIAAAABAAAAAQAGY2xpZW50AAABoe0IabwAAAB/MH0wDgYKKwYBBAEqAhEBAQUABGvHAcaXmq+54K5A3lq/7Ib2
xdjEdq5YTEI0DaiCCupywididLBUFjFa14XlfaTWk+/JXdxlxfyjYNq6j+BA95vpBBBkn6j5OXJz0o6PZCcKNFtcYUTFDcKk
21JmwakCR0n3DAtiJOMIhhQx9AAAAAEABVguNTA5AAABPjCCATowgeGgAwIBAgIIetxGXV8MS7owCgYIKoZIzj0EAwIwETEP
MA0GA1UEAxMGY2xpZW50MCAXDTI2MTExODA1MDE1M1oYDzIxMjYxMDI1MDUwMTUzWjARMQ8wDQYDVQQDEwZjbGllbnQwWTAT
BgcqhkjOPQIBBggqhkjOPQMBBwNCAASWmVugvDtfzwHCd3k6ml/XghH6FVb0Y/TYHkO05cF8Nff0gcQGrIL6quUsoRJ/d9mF
L/tAU5ziZEwvua6AkJdaoyEwHzAdBgNVHQ4EFgQUqsrQuB1xSBKbe+2HeAYdniejIr8wCgYIKoZIzj0EAwIDSAAwRQIgIshr
iEIYq5UbX+beSYeLEJhvfMiQBXdAWlX5Og8IjDkCIQDvYeb2hFtLwdaLNZFKgvGik8uUq1HotSORNeaspNVWiGE9aMOERSSY
tBOJYMmyjO0rqtIL
""")
TRUST_STORE = base64.b64decode("""
/u3+7QAAAAIAAAABAAAAAgACY2EAAAGh7QhuYgAFWC41MDkAAAE+MIIBOjCB4aADAgECAgh63EZdXwxLujAKBggqhkjOPQQD
AjARMQ8wDQYDVQQDEwZjbGllbnQwIBcNMjYxMTE4MDUwMTUzWhgPMjEyNjEwMjUwNTAxNTNaMBExDzANBgNVBAMTBmNsaWVu
dDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJaZW6C8O1/PAcJ3eTqaX9eCEfoVVvRj9NgeQ7TlwXw19/SBxAasgvqq5Syh
En932YUv+0BTnOJkTC+5roCQl1qjITAfMB0GA1UdDgQWBBSqytC4HXFIEpt77Yd4Bh2eJ6MivzAKBggqhkjOPQQDAgNIADBF
AiAiyGuIQhirlRtf5t5Jh4sQmG98yJAFd0BaVfk6DwiMOQIhAO9h5vaEW0vB1os1kUqC8aKTy5SrUei1I5E15qyk1VaIa/S/
va1jJxCpLX80tkwl2OV9L7w=
""")
STORE, KEY, TRUST, OTHER = (Secret(f"{name}-pw") for name in ("store", "key", "trust", "other"))


def test_the_private_key_fits_its_certificate() -> None:
    found = key_and_chain(KEY_STORE, STORE, KEY)

    key = load_pem_private_key(found.key_pem.reveal().encode(), None)
    certificate = load_pem_x509_certificate(found.certificate_pem.encode())
    assert certificate.subject.rfc4514_string() == "CN=client"
    wanted = certificate.public_key()
    assert isinstance(wanted, EllipticCurvePublicKey)
    public = key.public_key()
    assert isinstance(public, EllipticCurvePublicKey)
    assert public.public_numbers() == wanted.public_numbers()


@pytest.mark.parametrize("password", [TRUST, None], ids=["checked", "unchecked"])
def test_trusted_certificates_are_read_with_and_without_the_password(
    password: Secret | None,
) -> None:
    """Java reads a truststore without its password too, and cannot check it then."""
    assert (
        trusted_certificates(TRUST_STORE, password)
        == key_and_chain(KEY_STORE, STORE, KEY).certificate_pem
    )


@pytest.mark.parametrize(
    ("store", "store_password", "key_password", "sentence"),
    [
        (KEY_STORE, OTHER, KEY, "that this password does not open, or a damaged one"),
        (KEY_STORE, STORE, OTHER, "with a key that this password does not open"),
        (KEY_STORE, STORE, None, "with a key that this password does not open"),
        (KEY_STORE, None, None, "which needs `ssl.keystore.password`"),
        (KEY_STORE[:100] + b"!" + KEY_STORE[101:], STORE, KEY, "or a damaged one"),
        (TRUST_STORE, TRUST, None, "without a private key"),
    ],
)
def test_a_key_store_that_does_not_open_says_why(
    store: bytes, store_password: Secret, key_password: Secret | None, sentence: str
) -> None:
    with pytest.raises(UnreadableStore, match="a JKS store") as caught:
        key_and_chain(store, store_password, key_password)

    assert sentence in str(caught.value)


def test_a_store_that_is_cut_anywhere_is_refused_with_a_sentence() -> None:
    for end in range(4, len(KEY_STORE)):
        with pytest.raises(UnreadableStore):
            key_and_chain(KEY_STORE[:end], None, KEY)


@pytest.mark.filterwarnings("ignore:Parsed a")
def test_any_byte_may_be_another_one() -> None:
    """Unchecked, as without the store's password: an answer or a sentence, never another error."""
    for at in range(4, len(KEY_STORE)):
        changed = KEY_STORE[:at] + bytes([KEY_STORE[at] ^ 0xFF]) + KEY_STORE[at + 1 :]
        try:
            key_and_chain(changed, None, KEY)
        except UnreadableStore as exc:
            assert "JKS" in str(exc)


def test_stores_of_a_file_are_read_with_its_passwords() -> None:
    lines = (
        "A.security.protocol = SSL\n"
        "A.ssl.truststore.location = /trust.jks\nA.ssl.truststore.password = trust-pw\n"
        "A.ssl.keystore.location = /key.jks\nA.ssl.keystore.password = store-pw\n"
    )
    files = {"/trust.jks": TRUST_STORE, "/key.jks": KEY_STORE}

    assert problems_with(lines + "A.ssl.key.password = wrong\n", files) == [
        "line 8  A.ssl.keystore.location: is `/key.jks`, a JKS store with a key that this "
        "password does not open"
    ]
