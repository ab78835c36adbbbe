"""Make the four users of the store and their passwords: `python3 deploy/redis/make_users.py deploy/secrets`.

Writes users.acl (digests only, for Redis), an environment file for each process, and for each process the
token with which its metrics can be read: in its environment file and, for Prometheus, in worker.token,
api.token, alerts.token and ingest.token. grafana-operator.password and grafana.password are the first
passwords of the Grafanas for operators and for readers. It needs nothing but Python. Existing URLs,
passwords and tokens are kept, so it may be run again after an upgrade.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

# The API reads public keys only. The worker may not administer the store. But it must check that the store
# keeps acknowledged writes, and have deleted counts removed from the append-only file.
RULES = {
    "worker": "~dp:* +@all -@admin -@dangerous +config|get +info +bgrewriteaof +cluster|slots",
    "api": "~dp:*:pub:* -@all +get +getrange +exists +hgetall +hlen +hget +hmget +smembers +xrange +multi "
    "+exec +discard +ping +cluster|slots",
    # Alerts write their own states only; they read released values with the API's user.
    "alerts": "~dp:{!alerts}:pub:* -@all +hget +hset +hgetall +xadd +xrange +xrevrange +eval +evalsha +multi "
    "+exec +discard +ping +cluster|slots",
    "operator": "~* &* +@all",
}
# Nobody may log in as this user. But Redis 7 reads its own file as this user: without rights, data is lost.
DEFAULT_USER = "user default off ~* &* +@all"
VARIABLES = {
    "worker": "STREAM_APP_REDIS_URL",
    "api": "STREAM_APP_REDIS_API_URL",
    "alerts": "STREAM_APP_REDIS_ALERTS_URL",
    "operator": "REDIS_OPERATOR_URL",
}
OPERATOR_TOKEN = "STREAM_APP_OPERATOR_TOKEN"
MEASURED = ("worker", "api", "alerts", "ingest")  # each has metrics, and a token of its own
# The readers' Grafana is open to readers, so whoever takes it over must not read the operator's password.
GRAFANAS = ("grafana-operator.password", "grafana.password")


def acl(passwords: dict[str, str]) -> str:
    """Return the access list as Redis reads it."""
    lines = [DEFAULT_USER]
    for user, rules in RULES.items():
        digest = hashlib.sha256(passwords[user].encode()).hexdigest()
        lines.append(f"user {user} on #{digest} {rules}")
    return "\n".join(lines) + "\n"


def write(folder: Path, host: str = "redis:6379") -> None:
    """Write users.acl, and an environment file for every user. Args: host, of Redis in new URLs."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    passwords, tokens = {}, _tokens(folder)
    for user in dict.fromkeys((*VARIABLES, *MEASURED)):
        path, lines = folder / f"{user}.env", []
        if (variable := VARIABLES.get(user)) is not None:
            url = _written(path, variable) or f"redis://{user}:{secrets.token_urlsafe(32)}@{host}/0"
            passwords[user] = unquote(urlsplit(url).password or "")
            lines.append(f"{variable}={url}")
        if user in tokens:
            lines.append(f"{OPERATOR_TOKEN}={tokens[user]}")
            # Prometheus in its container must read this file. Only its owner may enter the folder.
            _replace(folder / f"{user}.token", tokens[user], 0o644)
        _replace(path, "\n".join(lines) + "\n", 0o600)
    for name, password in _first_passwords(folder).items():
        _replace(folder / name, password, 0o644)
    # Readable by the server in its container; nobody guesses 32 random bytes from their digest.
    _replace(folder / "users.acl", acl(passwords), 0o644)


def _first_passwords(folder: Path) -> dict[str, str]:
    """Return the first password of each Grafana: the one that it has already, unless both have it."""
    passwords: dict[str, str] = {}
    for name in GRAFANAS:
        known = (folder / name).read_text() if (folder / name).exists() else None
        passwords[name] = known if known and known not in passwords.values() else secrets.token_urlsafe(32)
    return passwords


def _tokens(folder: Path) -> dict[str, str]:
    """Return the token of each process: the one that it has already, unless another process has it, too."""
    tokens: dict[str, str] = {}
    for user in MEASURED:
        known = _written(folder / f"{user}.env", OPERATOR_TOKEN)
        tokens[user] = known if known and known not in tokens.values() else secrets.token_urlsafe(32)
    return tokens


def _written(path: Path, variable: str) -> str | None:
    """Return what a file has already, which may have been corrected by hand."""
    if not path.exists():
        return None
    return dict(line.split("=", 1) for line in path.read_text().splitlines()).get(variable)


def _replace(path: Path, text: str, mode: int) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w") as file:
        os.fchmod(descriptor, mode)  # whatever the umask is
        file.write(text)
    unfinished.replace(path)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python3 make_users.py FOLDER [HOST:PORT]")
    write(Path(sys.argv[1]), *sys.argv[2:])
    print(f"{sys.argv[1]}: users.acl, a .env and a .token for every process; keep this folder secret")
