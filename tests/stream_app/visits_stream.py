"""A file of visits of users in countries, for tests that count it by hand-driven loops."""

from __future__ import annotations

import json
from collections.abc import Iterable

from dphist.noise import NoiseSource
from tests.stream_app.declared import BIN_US
from tests.stream_app.one_source import OneSource

COUNTRIES = ("FR", "DE", "IT")
BINS = 15  # two epochs and a half
Visit = tuple[float, str, str]  # place on the time line in bins, user, country


class Visits(OneSource):
    """A file of visits, a store and a witness."""

    fields = ("user", "country")

    def append_visits(self, visits: Iterable[Visit]) -> None:
        """Append visits."""
        lines = (
            json.dumps({"at": int(bin * BIN_US), "user": user, "country": country}).encode()
            for bin, user, country in visits
        )
        with self.path.open("ab") as file:
            file.writelines(line + b"\n" for line in lines)

    async def run_until(self, bin: int, noise: NoiseSource | None) -> None:
        """Count all visits and close the bins before ``bin``, with new loops."""
        closer = self.closer(noise=noise)
        await closer.reconcile()
        ingest = self.ingest()
        self.clock.set_bin(bin)
        while await ingest.step():
            pass
        await closer.close_due()
        await closer.publisher.publish()
