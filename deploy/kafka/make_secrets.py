"""Make the broker's passwords and certificate: `python3 deploy/kafka/make_secrets.py deploy/secrets kafka`.

HOST is the name or the address by which clients reach the broker. Written into FOLDER:

    broker.pem, ca.pem   the broker's key and certificate, and the authority that signed it, for clients
    ca.key               the authority's key: keep it apart; it is needed only to make a new certificate
    kafka.jaas           the broker's users and their passwords
    kafka-worker.env     the worker's password, for its environment
    kafka-producer.env   the password of the user ``producer``, for your own programs

It needs Python and openssl. The authority and the users' passwords are kept if they exist, so a second run
makes a new certificate. Restart the broker then.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from ipaddress import ip_address
from pathlib import Path

PASSWORD = "STREAM_APP_KAFKA_SASL_PASSWORD"
USERS = ("worker", "producer")
CERTIFICATE_DAYS, AUTHORITY_DAYS = 397, 3650
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def write(folder: Path, host: str) -> None:
    """Write all files. Args: host, by which clients reach the broker."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if not (folder / "ca.key").exists():
        _make_authority(folder)
    _make_certificate(folder, host)
    passwords = {user: _password(folder / f"kafka-{user}.env") for user in USERS}
    # The broker in its container must read this file. Only its owner may enter the folder.
    _write(folder / "kafka.jaas", _jaas(passwords), 0o644)


def _make_authority(folder: Path) -> None:
    options = ["-days", str(AUTHORITY_DAYS), "-subj", "/CN=private-counts Kafka authority"]
    options += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl("req", "-x509", *_NEW_KEY, *options, "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    (folder / "ca.key").chmod(0o600)
    (folder / "ca.pem").chmod(0o644)


def _make_certificate(folder: Path, host: str) -> None:
    """Sign a new key of the broker, and write both into one file."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        at = Path(name)
        (at / "about").write_text(
            f"subjectAltName={_kind(host)}:{host}\nbasicConstraints=critical,CA:FALSE\n"
            "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl("req", *_NEW_KEY, "-subj", "/CN=kafka", "-keyout", at / "key", "-out", at / "request")
        signing = ["-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial"]
        signing += ["-CAserial", at / "serial", "-extfile", at / "about", "-days", str(CERTIFICATE_DAYS)]
        _openssl("x509", "-req", "-in", at / "request", *signing, "-out", at / "certificate")
        _write(folder / "broker.pem", (at / "key").read_text() + (at / "certificate").read_text(), 0o644)


def _kind(host: str) -> str:
    try:
        ip_address(host)
    except ValueError:
        return "DNS"
    return "IP"


def _password(path: Path) -> str:
    """Return the password in an environment file, which is made if it is missing."""
    if not path.exists():
        _write(path, f"{PASSWORD}={secrets.token_urlsafe(32)}\n", 0o600)
    return path.read_text().strip().partition("=")[2]


def _jaas(passwords: dict[str, str]) -> str:
    own = secrets.token_urlsafe(32)  # with which the broker reaches itself
    users = {"broker": own, **passwords}
    lines = [f'    user_{user}="{password}"' for user, password in users.items()]
    head = f'KafkaServer {{\n    {_LOGIN} required\n    username="broker" password="{own}"\n'
    return head + "\n".join(lines) + ";\n};\n"


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(("openssl", *words), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"openssl {words[0]}: {done.stderr.strip()}")


def _write(path: Path, text: str, mode: int) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w") as file:
        os.fchmod(descriptor, mode)  # whatever the umask is
        file.write(text)
    unfinished.replace(path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python3 make_secrets.py FOLDER HOST")
    write(Path(sys.argv[1]), sys.argv[2])
    print(f"{sys.argv[1]}: ca.pem, broker.pem, kafka.jaas and a .env for every user; keep this folder secret")
