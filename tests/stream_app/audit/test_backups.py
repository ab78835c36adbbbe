"""The checks of a copy of the store that need no copy."""

from __future__ import annotations

import asyncio

from stream_app.audit.backups import check_of_noise_key
from stream_app.vault.key_ring import KeyRing, SharedKey
from tests.models.memory import MemoryStore


def test_a_key_of_noise_that_is_not_here_is_a_check_that_fails() -> None:
    store, ring = MemoryStore(), KeyRing.of(bytes(range(32)))
    for mark, passed in ((ring.marks[0], True), (bytes(16), False)):
        store.noise_keys["visits"] = mark
        assert asyncio.run(check_of_noise_key("visits", store, SharedKey(ring))).passed is passed
