"""The lines with which ``stream-app run`` begins, and how far each stream has come."""

from __future__ import annotations

import json
from dataclasses import replace

from stream_app.config import ApiSettings, Settings, StreamSettings
from stream_app.config.access import is_loopback
from stream_app.core.instants import format_instant
from stream_app.core.segments.names import base_of, generation
from stream_app.loops.configured import stored_strategy
from stream_app.ports.reader import PublicReader
from stream_app.shell.progress import StreamProgress


def address(api: ApiSettings) -> str:
    """Return the URL of the page."""
    return f"http{'s' if api.tls else ''}://{_netloc(api.host, api.port)}/"


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def first_lines(settings: Settings, reader: PublicReader, *, serves: bool) -> list[str]:
    """Return who may read, and how this start continues each stream from earlier state.

    Args: serves, whether the API runs.
    """
    lines = []
    if serves and settings.api.keys is None and settings.api.proxy_header is None:
        whose = "everybody on this machine" if is_loopback(settings.api.host) else "EVERYBODY WHO REACHES IT"
        lines.append(f"no API key is required: {whose} may read the released values")
    for stream in settings.streams:
        now = await progress_of(stream, reader)
        if now.until_us is None:
            said = f"nothing was released yet; {_begins(stream)}"
        elif now.complete:
            said = "already complete; what was released is served, nothing is measured again"
        else:
            said = f"going on from {format_instant(now.until_us)}; nothing is measured again"
        lines.append(f"{stream.name}: {said}")
    lines.append(f"refused records are listed with their reasons below {settings.state_dir}, in dead_letters")
    return lines


def listening_lines(role: str, settings: Settings) -> list[str]:
    """Return where a child listens, once it does."""
    if role == "api":
        return [f"page and API: {address(settings.api)}    (Ctrl-C ends it)"]
    if role != "ingest" or settings.ingest is None:
        return []
    ingest, scheme = settings.ingest, "http" if settings.ingest.tls is None else "https"
    place = f"{scheme}://{_netloc(ingest.host, ingest.port)}/v1/ingest"
    return [f"events: POST {place}/{name}" for name in settings.spools]


def _begins(stream: StreamSettings) -> str:
    """Return where counting begins, so that nobody waits for old events, which are refused."""
    if stream.declared.source.replay is not None:
        return "starting"
    first_us = stream.declared.time.first_us
    if first_us is not None:
        return f"counting begins at {format_instant(first_us)}, earlier events are refused"
    return "counting begins with the bin of the first start, earlier events are refused (time.first)"


async def progress_of(stream: StreamSettings, reader: PublicReader) -> StreamProgress:
    """Return the progress of a stream's newest generation with visible rows, from public values only."""
    state, number = await reader.public_state(stream.name), 1
    while state is not None:
        number += 1
        following = await reader.public_state(generation(base_of(stream.name), number))
        if following is None or not following.visible_seq:
            break
        state, stream = following, replace(stream, name=generation(base_of(stream.name), number))
    # Released rows are of the bins that the stream began with; a start refuses other ones after these lines.
    begun = stream.declared if state is None else stored_strategy(stream.name, state.strategy).declared
    replay, binning, of_bins = begun.source.replay, begun.time.binning, None
    if replay is not None:
        first, last = binning.bin_of([replay.from_us, replay.to_us])
        of_bins = int(last - first)
    rows = await reader.rows(stream.name, state.visible_seq - 1, 1) if state and state.visible_seq else []
    if state is None or not rows:
        return StreamProgress(stream.name, 0, of_bins)
    row = json.loads(rows[-1][1])
    starts = {one.epoch: binning.start_us(one.first_bin) for one in state.epochs}
    return StreamProgress.of_row(row, of_bins, replay.to_us if replay else None, starts.get(row["epoch"]))
