"""``python -m tests.tutorial [LESSON...]``: take the lessons as they are written; by default all of them.

Each runs with a network of its own, so that the ports on the page are free whatever runs on this machine.
That needs Linux and the right to make a network namespace. Elsewhere the ports on the page must be free.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from tests.ending import end_all_with_this_run
from tests.tutorial.lesson import LESSONS
from tests.tutorial.terminals import REPOSITORY, Failed, learn

OWN_NETWORK = ("unshare", "--net", "--map-root-user")
LOOPBACK_UP = "ip link set lo up && exec "


def in_own_network(command: list[str]) -> list[str]:
    """Return a command that runs another one with its own loopback, where the system allows it."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return command
    if subprocess.run([*OWN_NETWORK, "true"], capture_output=True, check=False).returncode:
        return command
    return [*OWN_NETWORK, "sh", "-c", LOOPBACK_UP + '"$@"', "sh", *command]


def main(lessons: list[str]) -> int:
    """Take lessons one after another; return the exit status."""
    if lessons[:1] == ["--here"]:
        try:
            print(json.dumps(learn(lessons[1]), indent=1))
        except Failed as failure:
            print(failure, file=sys.stderr)
            return 1
        return 0
    failed = 0
    for lesson in lessons or LESSONS:
        here = [sys.executable, "-m", "tests.tutorial", "--here", lesson]
        print(f"lesson {lesson}", flush=True)
        failed |= subprocess.run(in_own_network(here), cwd=REPOSITORY, check=False).returncode
    return failed


if __name__ == "__main__":
    end_all_with_this_run()
    sys.exit(main(sys.argv[1:]))
