"""One world for tests: the service's own loops over one log, in virtual time, read on every surface.

    def test_late_event_counts_in_the_first_bin_that_is_not_cut() -> None:
        with World(*configured(visits={"keys": {"field": "country", "list": ["FR", "DE"]}})) as world:
            world.start()                              # a worker: the loops of ``wiring/pipeline.py``
            world.arrive(100, 100.5, country="FR")     # two events, dated in bins; a bin has ten seconds
            world.until(102.5)                         # time passes; what is due happens
            world.arrive(100, country="DE")            # late: bins 100 and 101 are cut
            world.until(104)
            assert world.counts() == {100: 2, 102: 1}
            assert world.json("count?key=DE")["value"] == 1

*Given*: strategies. ``configured`` (``settings.py``) plans them from settings as a user writes them. Without
an epsilon a stream has no noise, so released counts are exact. Time begins with bin 100; an epoch has six.

*Events*: ``arrive`` and ``write`` append to the log now; ``play`` lets events arrive at their instants under
workers that end every two bins.

*Faults* (``faults.py``): ``start(store=Struck(world.store, release=first(lost_reply)))`` strikes calls of a
port. ``start(death=...)`` with ``deaths()`` ends a worker at any call. ``backup`` and ``restore`` are an
operator's. ``clock_ahead_us`` sets the clock forward. ``start`` twice has two workers.

*Expected* (``surfaces.py``): ``counts``, ``rows``, ``bins``, ``view``, the API (``get``, ``json``; its
metrics are at ``/metrics``), and what only the service knows: ``state``, ``operator_counts``, ``ledger``,
``letters``, ``witnessed``.

A test is a plain function: no test of loops needs ``async def`` or ``asyncio.run``, and nothing waits in real
time. A bin costs about 5 ms, a world 10 ms. Tests outside this world that need an event loop are
``async def``; pytest runs them (``anyio_mode`` in pyproject.toml).

``features.py`` holds every feature that decides what counts, each beside its recount by hand; a new feature
is a new row there. ``test_recounts.py`` compares all answers with the recount, ``test_coverage.py`` all
intervals.
"""

from tests.world.faults import (
    Death,
    Struck,
    deaths,
    every_second,
    first,
    lost_call,
    lost_reply,
    meanwhile,
    raising,
    slow,
)
from tests.world.settings import configured
from tests.world.world import World

__all__ = [
    "Death",
    "Struck",
    "World",
    "configured",
    "deaths",
    "every_second",
    "first",
    "lost_call",
    "lost_reply",
    "meanwhile",
    "raising",
    "slow",
]
