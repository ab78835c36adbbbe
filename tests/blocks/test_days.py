"""The recipes for files of days run as the page has them, and a bucket holds the same files."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from deploy.kafka import broker
from deploy.ports import free_port
from tests.blocks.counted import counted
from tests.blocks.pages import REPOSITORY, Block, blocks
from tests.patience import eventually

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.timeout(1_800)]

LOCK = REPOSITORY / "requirements" / "recipes.txt"
RECIPES = REPOSITORY / ".venv" / "recipes"
PRINTED = 1e-4  # of a number, by which it may be rounded where it is printed
OWN = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(*words: str | Path, cwd: Path, **environment: str) -> str:
    """Return what a program prints. Raises: AssertionError with its words if it fails."""
    ended = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{words}\n{ended.stdout[-4_000:]}{ended.stderr[-4_000:]}"
    return ended.stdout


def page_blocks() -> list[Block]:
    return list(blocks("docs/exports.md"))


def recipe(start: str) -> str:
    """Return the block that begins like this."""
    return next(one.text for one in page_blocks() if one.text.startswith(start))


@pytest.fixture(scope="module")
def programs() -> Path:
    """Return the programs of the recipes, installed from their lock: 600 MB, once."""
    stamp = RECIPES / ".installed"
    if not stamp.exists() or stamp.read_text() != LOCK.read_text():
        run(sys.executable, "-m", "venv", "--clear", RECIPES, cwd=REPOSITORY)
        pip = (RECIPES / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "--no-deps", "--require-hashes", "-r", LOCK, cwd=REPOSITORY)
        stamp.write_text(LOCK.read_text())
    return RECIPES / "bin"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the days of a counted week, written as the page says."""
    folder = tmp_path_factory.mktemp("week")
    with counted(folder):
        pass
    run("bash", "-ec", recipe("stream-app export"), cwd=folder, **OWN)
    return folder


def sums(folder: Path, table: str, *by: str) -> dict[tuple[str, ...], float]:
    """Return sums of the stream clicks by columns, of which ``day`` is the start's."""
    from pyarrow import parquet

    found = Counter[tuple[str, ...]]()
    for row in parquet.read_table(folder / "days" / "clicks" / table).to_pylist():
        row["day"] = f"{row['start']:%Y-%m-%d}"
        found[tuple(row[name] for name in by)] += row["value"]
    return dict(found)


def test_duckdb_adds_up_days(folder: Path, programs: Path) -> None:
    printed = run(programs / "python", "-c", recipe("import duckdb"), cwd=folder)
    days = dict(re.findall(r"│ (2013-01-0\d)[^│]*│ +([\d.]+) │", printed))
    assert {(day,): float(value) for day, value in days.items()} == pytest.approx(
        sums(folder, "bin", "day"), rel=PRINTED
    )
    assert len(days) == 7


def test_dbt_makes_a_table(folder: Path, programs: Path) -> None:
    for one in page_blocks():
        if name := re.search(r'title="(.+)"', one.title):
            (folder / name[1]).parent.mkdir(exist_ok=True)
            (folder / name[1]).write_text(one.text)
    quiet = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DO_NOT_TRACK": "1"}
    run(programs / "dbt", "run", cwd=folder, **quiet)
    ask = (
        "import duckdb, json; print(json.dumps(duckdb.connect('counts.duckdb').sql("
        "'SELECT key, strftime(day, $$%Y-%m-%d$$), events FROM clicks_of_days').fetchall()))"
    )
    rows = json.loads(run(programs / "python", "-c", ask, cwd=folder))
    assert {(key, day): value for key, day, value in rows} == pytest.approx(
        sums(folder, "key_bin", "key", "day")
    )


def test_spark_adds_up_keys(folder: Path, programs: Path) -> None:
    java = Path(broker.java()).resolve().parents[1]
    local = {"JAVA_HOME": f"{java}", "SPARK_LOCAL_IP": "127.0.0.1"}
    printed = run(programs / "python", "-c", recipe("from pyspark"), cwd=folder, **local)
    keys = dict(re.findall(r"\| *([A-Z]{2}|other)\| *(-?[\d.]+)\|", printed))
    assert {(key,): float(value) for key, value in keys.items()} == pytest.approx(
        sums(folder, "key_bin", "key"), rel=PRINTED
    )


def test_notebook_reads_days(folder: Path) -> None:
    printed = run(sys.executable, "-c", recipe("import pandas"), cwd=folder)
    days = dict(re.findall(r"^(2013-01-0\d).* ([\d.]+)$", printed, re.M))
    assert {(day,): float(value) for day, value in days.items()} == pytest.approx(
        sums(folder, "bin", "day"), rel=PRINTED
    )
    keys = dict(re.findall(r"│ ([A-Z]{2}|other) +┆ (-?[\d.]+) +│", printed))
    assert {(key,): float(value) for key, value in keys.items()} == pytest.approx(
        sums(folder, "key_bin", "key"), rel=PRINTED
    )


@contextmanager
def bucket(folder: Path, programs: Path) -> Iterator[dict[str, str]]:
    """Run a server of S3 with the bucket ``counts``; yield the environment that names it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "moto_server", "-H", "127.0.0.1", "-p", f"{port}"], stdout=log, stderr=log
        )
        try:
            eventually(lambda: answers_at(url), lambda: (folder / "s3.log").read_text())
            httpx.put(f"{url}/counts").raise_for_status()
            yield {
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
            }
        finally:
            server.terminate()
            server.wait()


def answers_at(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url).status_code < 500
    return False


def test_bucket_gets_the_same_files(folder: Path, programs: Path, tmp_path: Path) -> None:
    from pyarrow import fs

    export = shlex.split("stream-app export s3://counts/week --format parquet --config stream-app.yaml")
    with bucket(tmp_path, programs) as where, pytest.MonkeyPatch.context() as patch:
        said = run("bash", "-ec", shlex.join(export), cwd=folder, **OWN, **where)
        again = run("bash", "-ec", shlex.join(export), cwd=folder, **OWN, **where)
        local = {
            f"{file.relative_to(folder / 'days')}": file.read_bytes()
            for file in (folder / "days").rglob("*")
            if file.is_file()
        }
        number = len(local) - 1
        assert said.splitlines()[-1] == f"s3://counts/week: {number} new files, {number} in all"
        assert again.splitlines()[-1] == f"s3://counts/week: 0 new files, {number} in all"
        for name, value in where.items():
            patch.setenv(name, value)
        files, root = fs.FileSystem.from_uri("s3://counts/week")
        found = files.get_file_info(fs.FileSelector(root, recursive=True))
        stored = {
            one.path.removeprefix(f"{root}/"): files.open_input_file(one.path).read()
            for one in found
            if one.type == fs.FileType.File
        }
        assert stored == local
        # A bucket that is not there is refused in one line.
        missing = subprocess.run(
            [*export[:2], "s3://nowhere/week", *export[3:]],
            cwd=folder,
            env=os.environ | OWN,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (missing.returncode, len(missing.stderr.splitlines())) == (2, 1), missing.stderr
        assert "s3://nowhere/week: cannot be used" in missing.stderr
