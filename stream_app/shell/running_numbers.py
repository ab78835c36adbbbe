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
    """Yield releases that say since when their running number runs, and what was not measured before."""
    last, note = None, ""
    for release in releases:
        if last is None:
            if since := client.epochs(stream).get(release.row["epoch"]):
                note = f"Running numbers are since {since}, the start of the epoch."
        elif release.row["epoch"] != last.row["epoch"]:
            note = f"An epoch began at {release.start}: its running numbers start at 0."
            if release.start != last.end:
                note += f" {not_measured([Gap(last.end, release.start)], None)}"
        last = release
        yield replace(release, meaning=f"{release.meaning} {note}".strip())


def _with_total(release: Release) -> Release:
    if release.total is None:
        raise OperatorError(
            f"--of sum: release {release.seq} says no sum, because the stream has none or an older version "
            "wrote it; leave --of out, or ask stream-app query --of sum"
        )
    meaning = f"The {release.added}{_SINCE}"
    return replace(release, value=release.total, interval=release.total_interval, meaning=meaning, counted="")


def _with_means(client: Client, stream: str, releases: Iterator[Release]) -> Iterator[Release]:
    starts: dict[int, str] = {}
    for release in releases:
        epoch = release.row["epoch"]
        if epoch not in starts:
            starts = client.epochs(stream)
        found = client.mean(stream, starts[epoch], release.end)
        yield replace(
            release,
            value=math.nan if found.value is None else found.value,
            interval=(found.lower, found.upper),
            meaning=f"The {found.counted}{_SINCE}",
            counted="",
        )
