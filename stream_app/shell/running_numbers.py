"""The running number of each release that ``stream-app watch`` shows: a count, a sum or a mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from stream_app.client import Client, Gap, Release
from stream_app.client.questions import Of
from stream_app.ports import OperatorError
from stream_app.shell.terminal import not_measured

_SINCE = ", since the start of the epoch."


def numbers_of(client: Client, stream: str, of: Of, releases: Iterator[Release]) -> Iterator[Release]:
    """Yield releases with a running count, sum or mean of their epoch as their value.

    A release holds its count and its sum. The service is asked for each mean.
    Raises: OperatorError if the stream has no sum.
    """
    if of == "count":
        return releases
    return map(_with_total, releases) if of == "sum" else _with_means(client, stream, releases)


def noting_epochs(client: Client, stream: str, releases: Iterator[Release]) -> Iterator[Release]:
    """Yield releases with the start of their running number, and the gaps before it."""
    last, note = None, ""
    for release in releases:
        if last is None:
            if since := client.epochs(_generation(client, stream, release)).get(release.row["epoch"]):
                note = f"Running numbers are since {since}, the start of the epoch."
        elif _epoch(release) != _epoch(last):
            what = "An epoch" if release.generation == last.generation else "An epoch with other settings"
            note = f"{what} began at {release.start}: its running numbers start at 0."
            if release.start != last.end:
                note += f" {not_measured([Gap(last.end, release.start)], None)}"
        last = release
        yield replace(release, meaning=f"{release.meaning} {note}".strip())


def _epoch(release: Release) -> tuple[int, int]:
    """Return a release's epoch: each generation numbers its own."""
    return release.generation, release.row["epoch"]


def _generation(client: Client, stream: str, release: Release) -> str:
    """Return the name of the generation that a release is of."""
    is_newest = client.summary(stream).generation == release.generation
    return stream if is_newest else f"{stream}@{release.generation}"


def _with_total(release: Release) -> Release:
    if release.total is None:
        raise OperatorError(
            f"--of sum: release {release.seq} says no sum, because the stream has none or an older version "
            "wrote it; leave --of out, or ask stream-app query --of sum"
        )
    meaning = f"The {release.added}{_SINCE}"
    return replace(release, value=release.total, interval=release.total_interval, meaning=meaning, counted="")


def _with_means(client: Client, stream: str, releases: Iterator[Release]) -> Iterator[Release]:
    starts: dict[tuple[int, int], str] = {}
    for release in releases:
        if _epoch(release) not in starts:
            name = _generation(client, stream, release)
            starts = {(release.generation, epoch): at for epoch, at in client.epochs(name).items()}
        found = client.mean(name, starts[_epoch(release)], release.end)
        yield replace(
            release,
            value=math.nan if found.value is None else found.value,
            interval=(found.lower, found.upper),
            meaning=f"The {found.counted}{_SINCE}",
            counted="",
        )
