"""``stream-app statement``: one page about one stream, for lawyers and for readers, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stream_app.api.answers.statements import not_protected, protected, without_factor
from stream_app.config import StreamSettings
from stream_app.core.answers.labels import Labels
from stream_app.core.budget import over_epochs
from stream_app.core.ledger import statement
from stream_app.core.meaning import meaning_of
from stream_app.core.promise import promise_in_words
from stream_app.core.records import LedgerEntry
from stream_app.shell.planning.promises import first_epoch, relation_in_words


def page(stream: StreamSettings, now_us: int) -> Iterator[str]:
    """Yield the lines of a stream's page.

    It is about the configuration: one epoch of this stream. ``/v1/streams/NAME/privacy`` says what the ledger
    adds up. All sentences are those of the page and of ``stream-app privacy``.
    """
    entry = first_epoch(stream, now_us)
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
            yield f"- {without_factor(line, stated).replace('the factor below', 'the factor above')}"
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
