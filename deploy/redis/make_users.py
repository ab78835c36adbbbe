"""Make the four users of the store and their passwords: `python3 deploy/redis/make_users.py deploy/secrets`.

Writes users.acl (digests only, for Redis), one environment file for each process that needs a password, and
the token with which metrics can be read (in worker.env, ingest.env and, for Prometheus, operator.token).
It needs nothing but Python. Existing URLs and passwords are kept, so it may be run again after an upgrade.
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
    "api": "~dp:*:pub:* -@all +get +getrange +exists +hgetall +smembers +xrange +multi +exec +discard +ping "
    "+cluster|slots",
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
    token = folder / "operator.token"
    # Prometheus in its container must read this file. Only its owner may enter the folder.
    _replace(token, token.read_text() if token.exists() else secrets.token_urlsafe(32), 0o644)
    passwords = {}
    for user, variable in VARIABLES.items():
        path = folder / f"{user}.env"
        url = _written(path, variable) or f"redis://{user}:{secrets.token_urlsafe(32)}@{host}/0"
        passwords[user] = unquote(urlsplit(url).password or "")
        lines = [f"{variable}={url}"]
        if user == "worker":
            lines.append(f"{OPERATOR_TOKEN}={token.read_text()}")
        _replace(path, "\n".join(lines) + "\n", 0o600)
    # The process that receives events has metrics of its own, and no password.
    _replace(folder / "ingest.env", f"{OPERATOR_TOKEN}={token.read_text()}\n", 0o600)
    # Readable by the server in its container; nobody guesses 32 random bytes from their digest.
    _replace(folder / "users.acl", acl(passwords), 0o644)


def _written(path: Path, variable: str) -> str | None:
    """Return the URL that a file has already, which may have been corrected by hand."""
    if not path.exists():
        return None
    return dict(line.split("=", 1) for line in path.read_text().splitlines())[variable]


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
    print(f"{sys.argv[1]}: users.acl, operator.token and a .env for every user; keep this folder secret")
