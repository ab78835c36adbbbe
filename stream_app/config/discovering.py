"""``keys.discover``: keys that no list names, and the settings that they exclude."""

from __future__ import annotations

from collections.abc import Iterator

from stream_app.config import values
from stream_app.config.approximate import read_delta
from stream_app.config.document import Section
from stream_app.config.settings import StreamSettings
from stream_app.core.counting.cells import KeyList
from stream_app.core.counting.unlisted import EPOCHS, Discover
from stream_app.core.found_keys import ROOM

MOST_BROUGHT = 8
_LEAST_USERS = values.whole(1, 1_000_000, more=": a key that fewer users have brought is nearly never shown")
_EPOCHS = values.whole(0, 10_000, more=": for how many epochs after the one that found it a key is listed")
_ROOM = values.whole(1_000, 1_000_000_000, more=": events of hidden keys for which there is room")
_PER_USER = values.whole(1, MOST_BROUGHT, more=": the new keys that a user can help to find")


def read_discover(keys: Section) -> Discover | None:
    """Read ``keys.discover``; None if keys are not found. Raises: ConfigError."""
    section = keys.section("discover")
    if not section.written:
        return None
    epsilon = section.take("epsilon", values.positive_fraction)
    delta = read_delta(section)
    if delta is None:
        raise section.error("delta", "is missing: names need one; write for example 1e-9")
    users = section.section("users")
    discover = Discover(
        epsilon,
        delta,
        section.take("per_user", _PER_USER, 1),
        users.take("minimum", _LEAST_USERS, 1),
        section.take("epochs", _EPOCHS, EPOCHS),
        section.take("room", _ROOM, ROOM),
    )
    users.finish()
    section.finish()
    return discover


def check_discover(section: Section, stream: StreamSettings) -> None:
    """Refuse the settings that a stream that finds keys cannot have. Raises: ConfigError."""
    declared, keys = stream.declared, stream.declared.keys
    if keys is None or keys.discover is None:
        return
    privacy, user = declared.privacy, declared.privacy.per_user
    if not keys.other:
        text = "must be true beside keys.discover, and is if you take it out: it has no column and costs"
        raise section.error("keys.other", f"{text} nothing, because it is the total less all shown keys")
    if keys.discover.epsilon >= privacy.epsilon:
        text = "must be below privacy.epsilon, of which it is a part: the rest protects the counts"
        raise section.error("keys.discover.epsilon", text)
    if stream.total is not None and stream.total.delta is None:
        text = "is missing: the names of an epoch have a delta; write for example 1e-6"
        raise section.error("privacy.total.delta", text)
    if user is None and keys.discover.per_user != 1:
        text = "must be 1 for the unit event, because an event has one key; take it out"
        raise section.error("keys.discover.per_user", text)
    if declared.tree.release != "causal":
        text = "must be causal beside keys.discover: nobody knows ahead for which keys to draw noise"
        raise section.error("tree.release", text)
    for key, is_there, why in _not_beside(stream, keys):
        if is_there:
            raise section.error(key, f"does not go with keys.discover: {why}; take one of them out")


def _not_beside(stream: StreamSettings, keys: KeyList) -> Iterator[tuple[str, object, str]]:
    """Yield each setting that keys.discover excludes: its key, whether it is set, and the reason."""
    declared, privacy, user = stream.declared, stream.declared.privacy, stream.declared.privacy.per_user
    why = "a found key has a past of counts and sums; measure values of found keys in a second stream"
    yield "value", declared.value, why
    yield "tree.epochs", declared.tree.epochs, "levels over epochs need the keys of all epochs ahead"
    yield "keys.mode", keys.mode == "window", "a window's histogram needs its keys before it begins"
    yield "keys.total", keys.total, "the total is always measured there"
    yield "privacy.delta", privacy.delta, "approximate counts draw the noise of all keys together"
    why = "the rule for names is for one user more or less; a replaced user costs twice as much"
    yield "privacy.neighbours", privacy.neighbours != "add_remove", why
    why = "the names of an epoch are decided once, and each period would cost them again"
    yield "privacy.unit.per", user is not None and user.per, why
    yield "successor_of", declared.successor_of, "the names that its predecessor found do not go over"
