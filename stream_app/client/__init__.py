"""client: query released values of a service from Python, blocking or with asyncio; follow its releases.

May import: httpx, numpy, the standard library; nothing of the service, so that it could be a separate
package.
Start at: ``blocking.py`` (``Client``), then ``questions.py`` (requests and responses).
Must stay true: no answer without its error; a follower resumes where it stopped and sees no release twice.
"""

from stream_app.client.answers import AlertRule, Count, Mean, Release, Series, Summary, Total
from stream_app.client.awaiting import AsyncClient
from stream_app.client.blocking import Client
from stream_app.client.columns import Gap
from stream_app.client.distributions import Cdf, Cdfs, Quantiles, Window
from stream_app.client.questions import ClientError

__all__ = [
    "AlertRule",
    "AsyncClient",
    "Cdf",
    "Cdfs",
    "Client",
    "ClientError",
    "Count",
    "Gap",
    "Mean",
    "Quantiles",
    "Release",
    "Series",
    "Summary",
    "Total",
    "Window",
]
