"""``python deploy/release.py [FOLDER]``: what a release consists of, from the last commit and nothing else.

    private_counts-V-py3-none-any.whl, private_counts-V.tar.gz   wheel and sdist of the service
    dphist-V-py3-none-any.whl, dphist-V.tar.gz                   wheel and sdist of the library alone
    private-counts-image-V.tar.gz    what the image is built from: docker build -f deploy/Dockerfile - < FILE
    private-counts-V.cdx.json        the software in the image, by version and hash (CycloneDX)
    SHA256SUMS                       sha256sum --check SHA256SUMS

The same commit gives the same bytes.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
TOOLS = REPOSITORY / ".venv" / "tools" / "bin"


def release(folder: Path) -> list[Path]:
    """Write a release of the last commit into a new folder; return its files, the checksums last."""
    folder.mkdir(parents=True)
    seconds = int(_run("git", "log", "-1", "--format=%ct", cwd=REPOSITORY))
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary)
        archive = subprocess.check_output(["git", "archive", "HEAD"], cwd=REPOSITORY)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(source, filter="data")
        version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
        packages(source, folder, seconds)
        image_context(source, folder / f"private-counts-image-{version}.tar.gz", seconds)
        bill_of_materials(source, folder / f"private-counts-{version}.cdx.json", version)
    made = sorted(folder.iterdir())
    sums = folder / "SHA256SUMS"
    sums.write_text(
        "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    )
    return [*made, sums]


def packages(source: Path, folder: Path, seconds: int) -> None:
    """Build sdist and wheel of service and library. Args: seconds, each file's time since 1970."""
    build = (TOOLS / "python", "-m", "hatchling", "build", "-d", folder)
    _run(*build, cwd=source, SOURCE_DATE_EPOCH=str(seconds))
    with tempfile.TemporaryDirectory() as temporary:
        _run(*build, cwd=library(source, Path(temporary)), SOURCE_DATE_EPOCH=str(seconds))


def library(source: Path, folder: Path) -> Path:
    """Lay out what the library is built from: its folder, the licence, and the papers' reproduction."""
    made = folder / "dphist"
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source / "dphist", made, ignore=unwanted)
    shutil.copytree(source / "research", made / "research", ignore=unwanted)
    shutil.copy(source / "LICENSE", made)
    return made


def image_context(source: Path, archive: Path, seconds: int) -> None:
    """Pack the files that the image is built from: those that .dockerignore lets in, and its own two."""
    ignored = (source / ".dockerignore").read_text().splitlines()
    wanted = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    unwanted = [line.removeprefix("**/") for line in ignored if line.startswith("**/")]
    with (
        archive.open("wb") as out,
        # Without a name and a time of its own, the archive depends on its files alone.
        gzip.GzipFile("", "wb", fileobj=out, mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            name = path.relative_to(source)
            let_in = any(name == Path(want) or Path(want) in name.parents for want in wanted)
            kept_out = any(fnmatch.fnmatch(part, pattern) for part in name.parts for pattern in unwanted)
            if (let_in and not kept_out) or str(name) in (".dockerignore", "deploy/Dockerfile"):
                entry = tar.gettarinfo(path, str(name))
                entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = seconds, 0, 0, "", ""
                with path.open("rb") as content:
                    tar.addfile(entry, content)


def bill_of_materials(source: Path, file: Path, version: str) -> None:
    """Write the software that the image installs, from its lock."""
    options = ("--pyproject", "pyproject.toml", "--output-reproducible", "--of", "JSON", "-o", file)
    # It warns that a lock does not say who needs whom.
    _run(
        TOOLS / "python",
        "-W",
        "ignore",
        TOOLS / "cyclonedx-py",
        "requirements",
        *options,
        "requirements/image.txt",
        cwd=source,
    )
    bill = json.loads(file.read_text())
    bill["metadata"]["component"]["version"] = version
    file.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")


def _run(*command: str | Path, cwd: Path, **environment: str) -> str:
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main(arguments: Sequence[str]) -> int:
    """Make a release and list its files; return the exit status."""
    folder = Path(arguments[0]) if arguments else REPOSITORY / "dist"
    if folder.exists():
        print(f"release: {folder} is there already; remove it or name another folder", file=sys.stderr)
        return 2
    if not (TOOLS / "cyclonedx-py").is_file():
        print("release: its tools are not installed; run: make release", file=sys.stderr)
        return 2
    for path in release(folder):
        print(f"{path.stat().st_size:>10,}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
