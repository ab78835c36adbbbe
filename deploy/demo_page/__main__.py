"""``python -m deploy.demo_page``: make the demo page; ``release``: from new releases, in minutes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deploy.demo_page.answers import answers_of
from deploy.demo_page.bundle import PAGE, build
from deploy.demo_page.deployments import DAYS, DEPLOYMENTS, EPSILONS, START, UNITS, ZONE, released
from deploy.demo_page.truth import recount
from stream_app.shell.flights import write_flights


async def release(events: Path, folder: Path) -> dict[str, Any]:
    """Run every deployment to the end of its replay; return the service's answers by its name."""
    answers: dict[str, Any] = {}
    for one in DEPLOYMENTS:
        (folder / one.name).mkdir()
        async with released(one, events, folder / one.name) as reader:
            answers[one.name] = await answers_of(reader)
        print(f"released: epsilon {one.epsilon}, unit {one.unit}", flush=True)
    return answers


def script(answers: dict[str, Any], truth: dict[str, Any], days: int = DAYS) -> str:
    """Return the script with the page's data. Args: answers, by the deployment's name; truth, by unit."""
    data = {
        "start": START.timestamp(),
        "days": days,
        "zone": ZONE,
        "epsilons": EPSILONS,
        "units": list(UNITS),
        "truth": truth,
        "deployments": answers,
    }
    return f"window.RELEASED = {json.dumps(data, separators=(',', ':'))};\n"


def main(words: list[str]) -> int:
    """Make the page; return the exit status."""
    data = PAGE / "released.js"
    if words == ["release"] or not data.exists():
        print("the real service now counts the year 12 times, with new noise: some minutes", flush=True)
        with TemporaryDirectory() as temporary:
            events = Path(temporary) / "flights.ndjson"
            write_flights(events)
            answers = asyncio.run(release(events, Path(temporary)))
            data.write_text(script(answers, recount(events)), encoding="utf-8")
    for name, text in build().items():
        (PAGE / name).write_text(text, encoding="utf-8")
    print(f"open {PAGE / 'index.html'} in a browser")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
