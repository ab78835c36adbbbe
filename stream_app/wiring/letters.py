"""Where a worker keeps the letters of refused records: in files, and in a topic if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stream_app.config import Settings
from stream_app.ports import DeadLetters
from stream_app.sinks.dead_letter_file import DeadLetterFiles
from stream_app.wiring.storage import close_client

if TYPE_CHECKING:
    from stream_app.sinks.dead_letter_topic import DeadLetterTopic


@asynccontextmanager
async def letters_topic(
    settings: Settings, on_unsent: Callable[[int], None]
) -> AsyncIterator[DeadLetterTopic | None]:
    """Yield the open topic of dead letters, whose letters are sent meanwhile; None without a topic.

    Args: on_unsent, takes the number of letters that the topic did not get.
    Raises: OperatorError if the topic cannot be used.
    """
    kept = settings.dead_letters
    if kept.topic is None:
        yield None
        return
    from stream_app.sinks.dead_letter_topic import DeadLetterTopic
    from stream_app.wiring.topics import cluster_of

    cluster = cluster_of(settings, kept.cluster)
    topic = DeadLetterTopic(cluster, kept.topic, kept.keep_us, kept.most_bytes, on_unsent)
    await topic.open()
    sending = asyncio.create_task(topic.run())
    try:
        yield topic
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await close_client(topic.close)


def in_both(files: DeadLetterFiles, topic: DeadLetterTopic | None, source: str) -> DeadLetters:
    """Return a sink for letters: files, and the topic if there is one. Args: source, of the letters."""
    if topic is None:
        return files
    from stream_app.sinks.dead_letter_topic import LettersInBoth

    return LettersInBoth(files, topic, source)
