"""Parquet files of whole days in a folder or a bucket, and the manifest that lists them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from stream_app.durable import locked, secret_directory, write_durably
from stream_app.ports import OperatorError

MANIFEST = "manifest.json"
VERSION = 1
_HEADER = "private_counts_parquet"
_BUCKET = "s3://"


class _Place(Protocol):
    def read(self, path: str) -> bytes | None: ...

    def write(self, path: str, data: bytes) -> None: ...


class _Folder:
    """A folder of this machine. One export at a time writes to it."""

    def __init__(self, folder: Path, resources: ExitStack) -> None:
        self._folder = secret_directory(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        resources.callback(os.close, descriptor)
        if not locked(descriptor):
            raise OperatorError(f"{folder}: another export writes to it; wait for its end")

    def read(self, path: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self._folder / path).read_bytes()
        return None

    def write(self, path: str, data: bytes) -> None:
        write_durably(self._folder / path, [data])


class _Bucket:
    """A prefix in a bucket of S3. An object appears when all of it is stored."""

    def __init__(self, address: str) -> None:
        from pyarrow import fs

        self._files, self._root = fs.FileSystem.from_uri(address)

    def read(self, path: str) -> bytes | None:
        with suppress(FileNotFoundError), self._files.open_input_file(f"{self._root}/{path}") as file:
            found: bytes = file.read()
            return found
        return None

    def write(self, path: str, data: bytes) -> None:
        with self._files.open_output_stream(f"{self._root}/{path}") as file:
            file.write(data)


class DayFiles:
    """The files of whole days at one place. Each is written once; readers see all of a file or nothing.

    Guarantee: a file is whole before the manifest lists it. A crash leaves files that are not listed; the
        next export writes them again, with the same bytes. So two exports into one bucket do no harm.
    """

    def __init__(self, target: str, place: _Place) -> None:
        self.target, self._place = target, place
        self.listed = self._read_manifest()

    def last(self, stream: str) -> Mapping[str, Any] | None:
        """Return the entry of the manifest about the last file of a stream; None without one."""
        own = [one for one in self.listed.values() if one["stream"] == stream]
        return max(own, key=itemgetter("seq"), default=None)

    def days(self, stream: str) -> set[str]:
        """Return the days of a stream that are listed."""
        return {one["day"] for one in self.listed.values() if one["stream"] == stream}

    def add(self, path: str, data: bytes, facts: Mapping[str, Any]) -> None:
        """Write a file; ``save`` lists it. Args: facts, of the manifest, beside its size and digest."""
        with _naming(self.target):
            self._place.write(path, data)
        digest = hashlib.sha256(data).hexdigest()
        self.listed[path] = {"path": path, **facts, "bytes": len(data), "sha256": digest}

    def save(self) -> None:
        """Write the manifest, with the files that another export has listed meanwhile."""
        self.listed = self._read_manifest() | self.listed
        files = [self.listed[path] for path in sorted(self.listed)]
        text = json.dumps({_HEADER: VERSION, "files": files}, indent=1) + "\n"
        with _naming(self.target):
            self._place.write(MANIFEST, text.encode())

    def _read_manifest(self) -> dict[str, dict[str, Any]]:
        with _naming(self.target):
            text = self._place.read(MANIFEST)
        if text is None:
            return {}
        try:
            found = json.loads(text)
            version, files = found[_HEADER], {one["path"]: one for one in found["files"]}
        except (ValueError, LookupError, TypeError):
            raise OperatorError(
                f"{self.target}/{MANIFEST}: is no manifest of this service; name another place"
            ) from None
        if version != VERSION:
            raise OperatorError(
                f"{self.target}/{MANIFEST}: has version {version}, and this build knows version {VERSION}; "
                "use the build that wrote it, or a newer one"
            )
        return files


@contextmanager
def day_files(target: str) -> Iterator[DayFiles]:
    """Yield the files at a place. Args: target, a folder, or an address such as s3://bucket/prefix.

    Raises: OperatorError if it cannot be used, or another export writes to the folder.
    """
    with ExitStack() as held:
        with _naming(target):
            bucket = target.startswith(_BUCKET)
            place = _Bucket(target.rstrip("/")) if bucket else _Folder(Path(target).absolute(), held)
        yield DayFiles(target.rstrip("/"), place)


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Name a place in one line if it cannot be used. Raises: OperatorError."""
    try:
        yield
    except OperatorError:
        raise
    except (OSError, ValueError) as failure:  # pyarrow cannot read an address: ValueError
        said = (getattr(failure, "strerror", None) or str(failure)).splitlines()[0][:300]
        raise OperatorError(f"{place}: cannot be used ({said}); check the address and the rights") from None


def parquet_of(parts: Sequence[Mapping[str, Any]], said: Mapping[str, str]) -> bytes:
    """Return rows as a Parquet file; the same rows always have the same bytes.

    Args: parts, columns of equal length by name, one after the other; ``start`` and ``end`` are microseconds
        since 1970. said, the metadata of the file's schema.
    """
    import pyarrow
    from pyarrow import parquet

    types = {"start": pyarrow.timestamp("us", tz="UTC"), "generation": pyarrow.int32()}
    types["end"] = types["start"]
    tables = [
        pyarrow.table({name: pyarrow.array(column, types.get(name)) for name, column in part.items()})
        for part in parts
    ]
    sink = pyarrow.BufferOutputStream()
    table = pyarrow.concat_tables(tables).replace_schema_metadata(dict(said))
    parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())
