"""client: ask a service for released values from Python, at once or awaited; follow its releases.

May import: httpx, numpy, the standard library; nothing of the service, so that it could live alone.
Start at: ``blocking.py`` (``Client``), then ``questions.py`` (what is asked, how answers are read).
Must stay true: no answer without its error; a follower resumes where it was and sees no release twice.
"""

from stream_app.client.answers import Cdf, Cdfs, Count, Quantiles, Release, Series, Window
from stream_app.client.awaiting import AsyncClient
from stream_app.client.blocking import Client
from stream_app.client.questions import ClientError

__all__ = [
    "AsyncClient",
    "Cdf",
    "Cdfs",
    "Client",
    "ClientError",
    "Count",
    "Quantiles",
    "Release",
    "Series",
    "Window",
]
