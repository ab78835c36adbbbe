"""The worker's work: in the Faust app where topics are read, in loops of its own where only files are."""

from __future__ import annotations

from stream_app.bootstrap import run_worker
from stream_app.config import Settings, TopicSettings


async def count(settings: Settings) -> None:
    """Count and release until cancelled, or until every stream is a replay that has ended.

    Raises: OperatorError, one line, where it cannot start or go on.
    """
    if any(isinstance(stream.source, TopicSettings) for stream in settings.streams):
        # Faust takes a second to load, which files need not wait for.
        from stream_app.worker import run

        await run(settings)
    else:
        await run_worker(settings)
