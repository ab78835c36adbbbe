"""The commands of docs/how-to/rotate.md: a new password of Redis outlives the next start of Redis."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from redis.retry import Retry

from stream_app.state.embedded import find_server
from tests.deployment.test_redis import DeployedRedis, deployed
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.redis, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]


def with_new_password(folder: Path) -> tuple[str, str]:
    """Run the page's commands in a folder; return the worker's old and new password."""
    page = (REPOSITORY / "docs" / "how-to" / "rotate.md").read_text()
    found = re.search(r"^ *```sh new-password\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE)
    assert found is not None
    script = f'{found.group(1)}\necho "$old $new"'
    done = subprocess.run(
        ["sh", "-ec", script], cwd=folder, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    old, new = done.stdout.split("\n")[-2].split(" ")
    return old, new


def accepts(redis: DeployedRedis, password: str) -> bool:
    once = Retry(NoBackoff(), 0)  # the client would try a refused password again, for seconds
    with Redis(port=redis.port, username="worker", password=password, protocol=2, retry=once) as client:
        try:
            client.set("dp:rotated", "1")
        except AuthenticationError:
            return False
    return True


def test_a_new_password_of_redis_outlives_its_restart_and_the_old_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "redis").symlink_to(REPOSITORY / "deploy" / "redis")
    with deployed(tmp_path / "deploy" / "secrets", find_server()) as redis:
        others = {user: redis.url(user) for user in ("api", "alerts", "operator")}
        before = redis.worker_url
        old, new = with_new_password(tmp_path)
        assert redis.worker_url == before.replace(old, new) != before
        assert {user: redis.url(user) for user in others} == others
        assert (accepts(redis, old), accepts(redis, new)) == (True, False)
        with Redis.from_url(redis.url("operator"), protocol=2) as operator:
            operator.execute_command("ACL", "SETUSER", "worker", f">{new}")
            assert (accepts(redis, old), accepts(redis, new)) == (True, True)
            operator.execute_command("ACL", "SETUSER", "worker", f"<{old}")
        assert (accepts(redis, old), accepts(redis, new)) == (False, True)
        redis.kill()
        redis.start()
        assert (accepts(redis, old), accepts(redis, new)) == (False, True)
