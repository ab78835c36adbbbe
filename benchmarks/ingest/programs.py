"""The consumers' own performance tests, which do nothing with records: Kafka's in Java, librdkafka's in C.

``kafka-consumer-perf-test`` comes from Maven, in the broker's version. ``rdkafka_performance`` is compiled
from the examples of Debian's source package, against Debian's library. Both are made once, under .venv.

The speed is what the program prints: from its first records to its last. The processor time is the whole
process', with the start of a JVM, because neither program prints its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from deploy.kafka.broker import java

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / ".venv" / "ingest-tools"

Measured = dict[str, float]


def consumer_perf_test(servers: str, topic: str, events: int) -> Measured:
    """Return the measurements of Kafka's own test of a consumer."""
    command = [java(), "-Xmx512m", "-cp", f"{_jars()}/*", "org.apache.kafka.tools.ConsumerPerformance"]
    options = ["--bootstrap-server", servers, "--topic", topic, "--num-records", str(events), "--hide-header"]
    said, used = _run([*command, *options, "--command-property", "isolation.level=read_committed"])
    # start, end, MB, MB/s, records, records/s, ms of joining, ms of fetching, ...
    fields = next(line for line in said.splitlines() if line.count(",") >= 9).split(",")
    return {"events": int(fields[4]), "seconds": int(fields[7]) / 1000} | used


def rdkafka_performance(servers: str, topic: str, events: int) -> Measured:
    """Return the measurements of librdkafka's own test of a consumer."""
    options = ["-G", f"benchmark-{uuid4()}", "-t", topic, "-b", servers, "-c", str(events)]
    said, used = _run([str(_compiled()), *options, "-X", "auto.offset.reset=earliest"])
    found = re.findall(r"% (\d+) messages \(\d+ bytes\) consumed in (\d+)ms", said)
    if not found:
        raise RuntimeError(f"rdkafka_performance: {said[-400:]}")
    return {"events": int(found[-1][0]), "seconds": int(found[-1][1]) / 1000} | used


PROGRAMS: dict[str, Callable[[str, str, int], Measured]] = {
    "consumer_perf_test": consumer_perf_test,
    "rdkafka_performance": rdkafka_performance,
}


def _run(command: Sequence[str]) -> tuple[str, Measured]:
    """Run a program; return what it printed, its processor time and its peak memory."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    if process.returncode:
        raise RuntimeError(f"{command[0]}: {text[-400:]}")
    return text, {"cpu_seconds": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}


def _jars() -> Path:
    """Return the folder of kafka-tools and its dependencies, fetched through Maven once."""
    folder = TOOLS / "jars"
    if not (folder / ".complete").exists():
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        command = ["mvn", "-q", "-B", "-f", str(HERE / "tools-pom.xml"), goal]
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True, stdin=subprocess.DEVNULL)
        (folder / ".complete").touch()
    return folder


def _compiled() -> Path:
    """Return rdkafka_performance, compiled once from the examples of Debian's source package."""
    program = TOOLS / "rdkafka_performance"
    if program.exists():
        return program
    if not all(map(shutil.which, ("cc", "apt-get", "dpkg-source"))) or not _has_library():
        raise SystemExit("rdkafka_performance: apt-get install librdkafka-dev dpkg-dev build-essential")
    TOOLS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        [source] = _debian_source(Path(name), "librdkafka")
        (source / "config.h").touch()  # its configure script writes it; the example needs nothing of it
        command = ["cc", "-O2", "-w", "-I../src", "rdkafka_performance.c", "-lrdkafka", "-lpthread"]
        subprocess.run([*command, "-o", str(program)], cwd=source / "examples", check=True)
    return program


def _has_library() -> bool:
    said = subprocess.run(
        ["cc", "-print-file-name=librdkafka.so"], capture_output=True, text=True, check=True
    )
    return "/" in said.stdout  # the name alone: the compiler knows no such file


def _debian_source(folder: Path, package: str) -> list[Path]:
    """Unpack the source of a Debian package, from the places that hold the machine's packages."""
    lists = folder / "lists"
    (lists / "partial").mkdir(parents=True)
    sources = folder / "sources"
    sources.mkdir()
    for file in Path("/etc/apt/sources.list.d").glob("*.sources"):
        text = re.sub(r"(?m)^Types:.*$", "Types: deb-src", file.read_text())
        (sources / file.name).write_text(text)
    places = [
        f"Dir::Etc::sourceparts={sources}",
        "Dir::Etc::sourcelist=/dev/null",
        f"Dir::State::lists={lists}",
    ]
    options = [word for place in places for word in ("-o", place)]
    subprocess.run(["apt-get", *options, "-qq", "update"], check=True)
    subprocess.run(["apt-get", *options, "-qq", "source", package], cwd=folder, check=True)
    return [found for found in folder.glob(f"{package}-*") if found.is_dir()]
