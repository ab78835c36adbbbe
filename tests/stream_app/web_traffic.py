"""Made access logs whose visitors, pages, referrers and devices are known by how they were made.

python -m tests.stream_app.web_traffic 1000000 > access.log
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

_MOZILLA = "Mozilla/5.0 ({}) AppleWebKit/537.36 (KHTML, like Gecko) {}"
_DESKTOPS = ("Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7", "X11; Linux x86_64")
_AGENTS = {
    "desktop": [
        _MOZILLA.format(system, f"Chrome/{version}.0.0.0 Safari/537.36")
        for version in range(100, 140)
        for system in (
            "Windows NT 10.0; Win64; x64",
            "Macintosh; Intel Mac OS X 10_15_7",
            "X11; Linux x86_64",
        )
    ],
    "mobile": [
        _MOZILLA.format(f"Linux; Android {version}; K", "Chrome/137.0.0.0 Mobile Safari/537.36")
        for version in range(8, 16)
    ],
    "tablet": [
        _MOZILLA.format(f"iPad; CPU OS {version}_1 like Mac OS X", f"Version/{version}.0 Safari/604.1")
        for version in range(14, 19)
    ],
}
BOTS = ["curl/8.5.0", "-", _MOZILLA.format("compatible; Googlebot/2.1", "+http://www.google.com/bot.html")]
SITE = "shop.example"
HOSTS = ["search.example", "news.example", "social.example", "forum.example"]


@dataclass
class Truth:
    """What the lines hold, by hand: visitors by day and device, and views and arrivals by day."""

    visitors: dict[int, dict[str, set[tuple[str, str]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    pages: Counter[str] = field(default_factory=Counter)
    referrers: Counter[str] = field(default_factory=Counter)
    addresses: set[str] = field(default_factory=set)

    def count_of(self, device: str) -> int:
        """Return how many visitors of all days, each once a day, had a device."""
        return sum(len(day[device]) for day in self.visitors.values())


def made(lines: int, days: int, first: datetime, seed: int = 1) -> tuple[Iterator[bytes], Truth]:
    """Return lines in the order of their times, and the truth, which fills as the lines are made.

    Args: first, the start of the first of so many days.
    Of each visitor's day at most 3 pages are viewed and one referrer is another host, so no cap cuts.
    """
    truth = Truth()
    return _lines(random.Random(seed), lines, days, first, truth), truth


def _lines(rng: random.Random, count: int, days: int, first: datetime, truth: Truth) -> Iterator[bytes]:
    step_s = days * 86_400 / count
    views: Counter[tuple[int, str, str]] = Counter()
    for number in range(count):
        at = first + timedelta(seconds=number * step_s)
        day, zone = (at - first).days, rng.choice((0, 2, -5))
        address = f"198.51.{rng.randrange(100)}.{rng.randrange(100)}"
        truth.addresses.add(address)
        device = rng.choices(("desktop", "mobile", "tablet"), (6, 3, 1))[0]
        agent = rng.choice(_AGENTS[device])
        page, referrer, status = f"/p/{min(int(rng.paretovariate(1)), 400)}", "-", 200
        kind = rng.random()
        is_view = kind < 0.5 and views[day, address, agent] < 3
        if is_view:
            uri = page + rng.choice(("", "?utm_source=x", "?q=a%20b"))
            if not views[day, address, agent]:
                host = rng.choice(HOSTS)
                referrer = f"https://www.{host}/found?q=1"
                truth.referrers[host] += 1
            elif rng.random() < 0.5:
                referrer = f"https://{SITE}/p/1"
            views[day, address, agent] += 1
            truth.visitors[day][device].add((address, agent))
            truth.pages[page] += 1
        elif kind < 0.8:
            uri = rng.choice(("/style.css", "/app.js?v=3", "/favicon.ico", "/img/a.png"))
        elif kind < 0.9:
            uri, status = "/nothing-here", rng.choice((404, 500, 301))
        else:
            uri, agent = page, rng.choice(BOTS)
        local = at + timedelta(hours=zone)
        when = local.strftime(f"%d/%b/%Y:%H:%M:%S {zone * 100:+05d}")
        line = f'{address} - - [{when}] "GET {uri} HTTP/1.1" {status} {rng.randrange(90_000)}'
        yield f'{line} "{referrer}" "{agent}"\n'.encode()


if __name__ == "__main__":
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    sys.stdout.buffer.writelines(made(int(sys.argv[1]), 14, today - timedelta(days=14))[0])
