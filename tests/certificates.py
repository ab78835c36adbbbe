"""A certificate authority for tests, and certificates that it signed."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def write_certificates(folder: Path, *names: str) -> None:
    """Write the authority's ca.pem, and for each name a certificate for loopback.

    A name gets NAME.pem (the certificate), NAME.key (its key) and NAME.both (both in one file).
    """
    now = datetime.datetime.now(datetime.UTC)
    authority = ec.generate_private_key(ec.SECP256R1())

    def certificate(name: str, key: ec.EllipticCurvePrivateKey, is_authority: bool) -> x509.Certificate:
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return (
            x509.CertificateBuilder(_name("a test's authority"), _name(name), key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            # Python 3.13 trusts a chain only with the following three extensions.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
            )
            .add_extension(_usage(is_authority), critical=True)
            .sign(authority, hashes.SHA256())
        )

    def encoded(made: x509.Certificate) -> bytes:
        return made.public_bytes(serialization.Encoding.PEM)

    (folder / "ca.pem").write_bytes(encoded(certificate("a test's authority", authority, True)))
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        made = encoded(certificate(name, key, False))
        (folder / f"{name}.pem").write_bytes(made)
        (folder / f"{name}.key").write_bytes(_pem(key))
        (folder / f"{name}.both").write_bytes(_pem(key) + made)
