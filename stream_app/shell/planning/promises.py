"""The guarantee of a configuration in plain words: ``stream-app privacy``, and the page of ``statement``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.config.second_measurement import first_measurement
from stream_app.config.values import format_duration
from stream_app.core.answers.labels import Labels
from stream_app.core.budget import over_epochs, over_epochs_in_words, until_now_in_words
from stream_app.core.instants import format_instant
from stream_app.core.ledger import by_visitors_days, statement
from stream_app.core.meaning import in_keys, meaning_of, span
from stream_app.core.promise import promise_in_words
from stream_app.core.records import LedgerEntry
from stream_app.ports import OperatorError
from stream_app.shell.samples.fields import cap_findings, filling_findings
from stream_app.shell.samples.findings import EXACT, read_sample
from stream_app.wiring.event_logs import why_unreadable


def promises(settings: Settings, now_us: int) -> Iterator[str]:
    """Yield the combined guarantee of the configured streams, source by source, in plain words.

    It assumes that each stream runs one epoch, live streams from now. Earlier measurements are in the store's
    ledger, which the API shows under /v1/streams/NAME/privacy.
    """
    for source in dict.fromkeys(stream.declared.source.name for stream in settings.streams):
        streams = [stream for stream in settings.streams if stream.declared.source.name == source]
        entries = [_as_protected(stream, now_us) for stream in streams]
        yield from statement(source, entries).sentences()
        for stream, entry in zip(streams, entries, strict=True):
            yield relation_in_words(stream)
            if said := _over_epochs(stream, entry):
                yield said


def costs_over_epochs(streams: Sequence[StreamSettings], now_us: int) -> Iterator[str]:
    """Yield the cost of several epochs together, for each stream whose epochs' costs add up."""
    for stream in streams:
        costs = _over_epochs(stream, first_epoch(stream, now_us)), cost_until_now(stream, now_us)
        yield from filter(None, costs)


def _over_epochs(stream: StreamSettings, entry: LedgerEntry) -> str:
    if _counts_visitors(stream):
        return f"{stream.name}: for a visitor's day, further epochs cost nothing; days of one person add up."
    return over_epochs_in_words(entry)


def _counts_visitors(stream: StreamSettings) -> bool:
    return span(stream.declared) == "UTC day"  # a visitor is in one epoch


def cost_until_now(stream: StreamSettings, now_us: int) -> str:
    """Return the cost until now of a stream that begins in the past, with a remedy; empty for one epoch."""
    if _counts_visitors(stream):
        return ""
    said = until_now_in_words(first_epoch(stream, now_us), now_us, stream.total)
    replayed = stream.declared.source.replay is not None
    if not said or replayed or not isinstance(stream.source, SourceSettings):
        return said
    end = "time.until" if stream.declared.source.is_of_web_server else "source.replay"
    return f"{said} Epochs without events cost the same: if the file no longer grows, end it with {end}."


def meanings(streams: Sequence[StreamSettings]) -> Iterator[str]:
    """Yield the meaning of each stream that does not count every event, and a warning if a cap is too low.

    A file that cannot be read yet gives no warning: a plan needs no log.
    """
    found = []
    for stream in streams:
        meaning = meaning_of(stream.declared)
        if not meaning.plain:
            yield f"{stream.name}: {meaning.sentences}"
        found += list(_of_sample(stream))
    yield from found
    if found:
        yield EXACT


def _of_sample(stream: StreamSettings) -> Iterator[str]:
    """Yield facts about a stream's caps and its sum, from a sample of its file. The words are private."""
    source = stream.source
    bounded = stream.declared.privacy.per_user is not None or stream.declared.amounts is not None
    if not bounded or not isinstance(source, SourceSettings):
        return
    with suppress(OperatorError):
        batch = None if why_unreadable(source.file) else read_sample(stream)
        if batch is None:
            return
        found = list(cap_findings(stream, batch.columns))
        is_much = any(finding.state == "warn" for finding in found)
        if found and (is_much or stream.declared.privacy.caps.max_keys):
            *warnings, shares = found
            yield from (f"warning: {finding.what}: {finding.said}" for finding in warnings)
            yield f"{stream.name}: {shares.said}"
        for finding in filling_findings(stream, batch.columns):
            yield f"warning: {finding.what}: {finding.said}"


def first_epoch(stream: StreamSettings, now_us: int) -> LedgerEntry:
    """Return the ledger entry of a stream's first epoch, if it begins now."""
    strategy = planned(stream)
    entry = first_measurement(stream, now_us)
    mu = None if strategy.kind.mu is None else str(strategy.kind.mu)
    return replace(entry, strategy_hash=strategy.hash, mu=mu)


def _as_protected(stream: StreamSettings, now_us: int) -> LedgerEntry:
    [entry] = by_visitors_days(stream.declared, [first_epoch(stream, now_us)])
    return entry


def relation_in_words(stream: StreamSettings) -> str:
    """Return whom a stream protects, from when on, and how long its epochs are."""
    time, privacy, add_up = stream.declared.time, stream.declared.privacy, "do not add up"
    unit, replaced = privacy.per_user, privacy.neighbours == "substitute"
    if unit is None:
        whom = "each single event"
    else:
        within = "" if stream.declared.period is None else f" of one {span(stream.declared)}"
        add_up = "add up" if not within else "do not add up"
        counted = "each counts once" if stream.declared.count == "users" else f"{unit.caps.l1} count"
        caps = f"the field {unit.field}; {counted} per {span(stream.declared)}{in_keys(unit)}"
        whom = f"each user with all events{within} ({caps})"
    if replaced:
        whom += (
            ", also against replacing it by any other" if unit is None else ", also against replacing them"
        )
    start = "its first start" if time.first_us is None else format_instant(time.first_us)
    epoch = format_duration(time.epoch_bins * time.bin_us)
    epochs = f"An epoch lasts {epoch}; costs of epochs {add_up}."
    return f"{stream.name} protects {whom}. It counts from {start} on. {epochs}"


def page(stream: StreamSettings, now_us: int) -> Iterator[str]:
    """Yield the lines of a stream's page.

    It is about the configuration: one epoch of this stream. ``/v1/streams/NAME/privacy`` says what the ledger
    adds up. All sentences are those of the page and of ``stream-app privacy``.
    """
    from stream_app.api.answers.statements import not_protected, protected, with_odds  # loads much

    entry = _as_protected(stream, now_us)
    source = Labels(stream.title).source(entry.source)
    stated = replace(statement(entry.source, [entry]), source=source)
    yield f"# What {stream.title or stream.name} publishes, and whom it protects"
    yield ""
    meaning = meaning_of(stream.declared)
    yield "Counts every event." if meaning.plain else meaning.sentences
    yield ""
    yield "## The promise"
    yield ""
    shown = "anything that this stream shows in one epoch"
    first, *others = stated.sentences()
    yield f"- {stated.promise(shown) if stated.private else first}"
    yield from (f"- {sentence}" for sentence in others)
    yield "- Other streams over the same source cost more; stream-app privacy adds them up."
    yield f"- {relation_in_words(stream)}"
    if stream.total is None:
        yield "- No total limits how many epochs may follow."
    else:
        yield f"- No epoch of this stream opens that would exceed {stream.total.words}."
    yield from _over_time(entry)
    if not stated.private:
        return
    for title, lines in (("Protected", protected(stated)), ("Not protected", not_protected(stated))):
        yield ""
        yield f"## {title}"
        yield ""
        # The page shows a factor below these lines; here the promise above states it.
        for whole in lines:
            line = whole.replace("the stated sum is over all epochs", "this page states one epoch")
            yield f"- {with_odds(line, stated).replace('the factor below', 'the factor above')}"
    yield ""
    cost = promise_in_words(stream.declared.privacy.epsilon, stream.declared.delta)
    yield f"One epoch costs {cost}. docs/privacy.md has the proofs, and docs/choosing.md explains the words."


def _over_time(entry: LedgerEntry) -> Iterator[str]:
    """Yield a table of a user's cost over several epochs; nothing if the costs do not add up."""
    for row, (epochs, stated) in enumerate(over_epochs(entry)):
        if not row:
            yield from ("", "| epochs | cost for a user | for those who accept a delta |", "|---|---|---|")
        composed = promise_in_words(stated.composed, stated.composed_delta)
        yield f"| {epochs} | {promise_in_words(stated.epsilon, stated.delta)} | {composed} |"
