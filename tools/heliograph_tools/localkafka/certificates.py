"""An authority of its own for each cluster that speaks TLS. Runs on the driver."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from heliograph_tools.localkafka.ports import LOOPBACK
from heliograph_tools.localkafka.spec import TlsFiles


def write_certificates(folder: Path) -> TlsFiles:
    """Make `folder` with certificates for brokers on loopback and for one client."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = trustme.CA()
    files = TlsFiles(
        authority=folder / "authority.pem",
        broker=folder / "broker.pem",
        client=folder / "client.pem",
    )
    authority.cert_pem.write_to_path(str(files.authority))
    _write_leaf(files.broker, authority.issue_cert(LOOPBACK, "localhost"))
    _write_leaf(files.client, authority.issue_cert("client.heliograph.local"))
    return files


def _write_leaf(path: Path, leaf: trustme.LeafCert) -> None:
    # Java reads PKCS#8 keys only, and trustme writes the older format.
    key = load_pem_private_key(leaf.private_key_pem.bytes(), password=None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    path.touch(mode=0o600)
    path.write_bytes(pkcs8 + chain)
