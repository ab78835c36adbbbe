"""Every feature that decides what a stream counts: its settings, and the same by hand.

The recount is written from the documentation's words, one visit at a time, and uses none of the service's
arithmetic. Only the order of a user's visits within a bin comes from the service's hash of the user.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tests.models.choosing import ids_of
from tests.stream_app.declared import BIN_US, FIRST_BIN
from tests.world.settings import EPOCH_BINS

COUNTRIES, DEVICES = ("FR", "DE"), ("tv", "desk/top")
FOUND = (*COUNTRIES, "IT")  # all countries that visits have
LOW, HIGH, BUCKETS = Fraction(-10), Fraction(50), 12  # of delays
LEAST, MOST = Fraction(-20), Fraction(500)  # of amounts
MAX_AHEAD = 1
Visit = Mapping[str, Any]
Arrivals = dict[float, list[Visit]]  # by the instant in bins


@dataclass(frozen=True)
class Feature:
    """What a stream counts.

    Args: settings, as configured; matches, whether a visit matches the condition; device, whether the device
        is a second key; cap, how many visits of a user count in an epoch; 0: all; becomes, what countries
        are after ``keys.normalise``.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    matches: Callable[[Visit], bool] = lambda visit: True
    cap: int = 0
    becomes: Mapping[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, as answers name them; none without keys."""
        keys = self.settings.get("keys")
        if keys is None:
            return ()
        others = ("other",) if keys.get("other", True) is True else ()
        if "fields" not in keys:
            return (*(FOUND if self.finds_keys else COUNTRIES), *others)
        devices = [name.replace("/", "\\/") for name in DEVICES]
        return tuple(map("/".join, product((*COUNTRIES, "other"), devices)))

    @property
    def finds_keys(self) -> bool:
        """Whether the keys are found."""
        return "discover" in self.settings.get("keys", {})

    @property
    def unit(self) -> Fraction:
        """The unit to which amounts are rounded."""
        return Fraction(self.settings["sum"]["unit"]) if self.has("sum") else Fraction(1)

    @property
    def late(self) -> str:
        """What happens to late visits."""
        return str(self.settings.get("late", "next_bin"))

    def has(self, section: str) -> bool:
        """Return whether the stream has a section."""
        return section in self.settings

    def key_of(self, visit: Visit) -> str | None:
        """Return the key of a visit; None: it has none and is refused."""
        if not (keys := self.keys):
            return ""
        country = visit.get("country")
        country = self.becomes.get(country, country) if country else country
        name = country if country in self.keys or country in COUNTRIES else "other"
        if "fields" not in self.settings["keys"]:
            return name if name in keys else None
        device = visit.get("device")
        return "/".join((name, device.replace("/", "\\/"))) if device in DEVICES else None

    def settings_of(self, release: str, epsilon: str) -> dict[str, Any]:
        """Return the settings of a stream with a release and an epsilon."""
        if "delta" in self.settings.get("privacy", {}):
            tree = {}
        else:
            own = "causal" if self.finds_keys else release
            tree = {"tree": {**self.settings.get("tree", {}), "release": own}}
        privacy = {**self.settings.get("privacy", {}), "epsilon": epsilon}
        return {**self.settings, **tree, "privacy": privacy}


def _user(cap: int) -> dict[str, Any]:
    return {"privacy": {"unit": {"user": "user", "max_events": cap}}}


def _proposing(cap: int) -> dict[str, Any]:
    return {"privacy": {**_user(cap)["privacy"], "propose_caps": "1e8"}}


_COUNTRY = {"field": "country", "list": [*COUNTRIES]}
_FINDS = {"field": "country", "discover": {"epsilon": "5e8", "delta": "1e-9"}}
_BOTH = {
    "fields": ["country", "device"],
    "list": {"country": [*COUNTRIES], "device": [*DEVICES]},
    "other": {"country": True, "device": False},
}
_DELAY = {"field": "flight.delay", "min": int(LOW), "max": int(HIGH), "buckets": BUCKETS}
_AMOUNT = {"field": "cart.amount", "min": int(LEAST), "max": int(MOST), "unit": "0.01"}
_COUNT_USERS = {"count": "users", "privacy": {"unit": {"user": "user"}}}
_FRENCH = {"country": ["FR", "IT"]}


def _is_french(visit: Visit) -> bool:
    return visit.get("country") in ("FR", "IT")


FEATURES = {
    "events": Feature(),
    "dropped-if-late": Feature({"late": "drop"}),
    "refused-if-late": Feature({"late": "dead_letter"}),
    "where": Feature({"where": _FRENCH}, _is_french),
    "where-not": Feature(
        {"where": {"not": {"user": ["u1", "u2"]}}}, lambda visit: visit.get("user") not in ("u1", "u2")
    ),
    "where-a-number": Feature(
        {"where": {"cart.amount": {"min": 0, "below": 90}, "user": {"present": True}}},
        lambda visit: (amount := amount_of(visit)) is not None and 0 <= amount < 90 and "user" in visit,
    ),
    "where-any": Feature(
        {"where": {"any": [{"user": ["u1"]}, {"user": {"present": False}}]}},
        lambda visit: visit.get("user") in ("u1", None),
    ),
    "where-nobody": Feature({"where": {"user": ["zoe"]}}, lambda visit: False),
    "keys": Feature({"keys": _COUNTRY}),
    "keys-normalised": Feature(
        {"keys": {**_COUNTRY, "normalise": {"lower": True, "replace": {"fr": "FR", "de": "DE", "it": "FR"}}}},
        becomes={"IT": "FR"},
    ),
    "keys-and-total": Feature({"keys": {**_COUNTRY, "total": True}}),
    "keys-without-other-where": Feature(
        {"keys": {**_COUNTRY, "other": False}, "where": {"device": ["tv"]}},
        lambda visit: visit.get("device") == "tv",
    ),
    "key-fields": Feature({"keys": _BOTH}),
    "key-fields-and-total": Feature({"keys": {**_BOTH, "total": True}, "where": _FRENCH}, _is_french),
    "values": Feature({"value": _DELAY}),
    "keys-and-values": Feature({"keys": _COUNTRY, "value": _DELAY}),
    "keys-and-values-and-total": Feature(
        {"keys": {**_COUNTRY, "total": True}, "value": _DELAY, "late": "drop"}
    ),
    "sums": Feature({"sum": _AMOUNT}),
    "sums-by-key": Feature({"sum": _AMOUNT, "keys": _COUNTRY}),
    "sums-by-key-and-total": Feature({"sum": _AMOUNT, "keys": {**_COUNTRY, "total": True}}),
    "found-keys": Feature({"keys": _FINDS}),
    "sums-by-found-key": Feature({"sum": _AMOUNT, "keys": _FINDS}),
    "sums-by-key-fields-where": Feature(
        {"sum": _AMOUNT, "keys": _BOTH, "where": {"cart.amount": {"above": -10}}},
        lambda visit: (amount := amount_of(visit)) is not None and amount > -10,
    ),
    "users": Feature(_COUNT_USERS, cap=1),
    "users-where": Feature({**_COUNT_USERS, "where": _FRENCH, "late": "drop"}, _is_french, cap=1),
    "users-by-key": Feature({**_COUNT_USERS, "keys": _COUNTRY}, cap=1),
    "two-of-a-user": Feature(_user(2), cap=2),
    "two-of-a-user-late-refused": Feature({**_user(2), "late": "dead_letter"}, cap=2),
    "two-of-a-user-by-key-and-value": Feature({**_user(2), "keys": _COUNTRY, "value": _DELAY}, cap=2),
    "numbers-of-users": Feature(_proposing(2), cap=2),
    "numbers-of-users-by-key": Feature({**_proposing(3), "keys": _COUNTRY, "late": "drop"}, cap=3),
    "numbers-of-users-and-sums": Feature(
        {**_proposing(1), "keys": _COUNTRY, "sum": {**_AMOUNT, "unit": "1"}}, cap=1
    ),
    "sums-of-two-of-a-user": Feature({**_user(2), "sum": {**_AMOUNT, "unit": "1"}, "keys": _COUNTRY}, cap=2),
    "over-epochs": Feature({"tree": {"epochs": 2}}),
    "approximate-found-keys": Feature({"privacy": {"delta": "1e-6"}, "keys": _FINDS}),
    "approximate": Feature({"privacy": {"delta": "1e-6", "unit": {"user": "user", "max_events": 1}}}, cap=1),
    "approximate-users-by-key": Feature(
        {
            "count": "users",
            "privacy": {"delta": "1e-6", "unit": {"user": "user"}},
            "keys": {**_COUNTRY, "other": False},
        },
        cap=1,
    ),
}


class Counted(NamedTuple):
    """A visit that counts: its bin, its key, its bucket, and its amount in units above the least."""

    bin: int
    key: str
    bucket: int
    units: int


@dataclass
class Recount:
    """What a stream must have counted. ``refused`` has the reasons of dead letters, and of other refusals."""

    counted: list[Counted] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    users: Counter[tuple[int, str]] = field(default_factory=Counter)  # by epoch, with all of their visits

    def within(self, start: int, stop: int, under: str | None = None) -> list[Counted]:
        """Return what counts from bin ``FIRST_BIN + start`` on. Args: under, a key or a pattern."""
        bins = range(FIRST_BIN + start, FIRST_BIN + stop)
        return [one for one in self.counted if one.bin in bins and (under is None or _is_under(one, under))]


def _is_under(one: Counted, pattern: str) -> bool:
    own, wanted = one.key.replace("\\/", "|").split("/"), pattern.replace("\\/", "|").split("/")
    return all(part in (name, "*") for name, part in zip(own, wanted, strict=True))


def total_of(counted: list[Counted], feature: Feature) -> Fraction:
    """Return the sum of the amounts."""
    return sum(((one.units * feature.unit + LEAST) for one in counted), Fraction(0))


def amount_of(visit: Visit) -> Fraction | None:
    """Return the amount of a visit; None: it is no number."""
    try:
        return Fraction(str(visit["cart"]["amount"]))
    except (KeyError, ValueError):
        return None


def _bucket(visit: Visit) -> int | None:
    delay = visit.get("flight", {}).get("delay")
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        return None
    place = (Fraction(str(delay)) - LOW) * BUCKETS / (HIGH - LOW)
    return int(min(max(place // 1, 0), BUCKETS - 1))


def recounted(feature: Feature, arrivals: Arrivals, bins: int) -> Recount:
    """Count by hand. Args: bins, those before ``FIRST_BIN + bins`` are released."""
    found, candidates = Recount(), list[tuple[Visit, Counted]]()
    for instant, visits in sorted(arrivals.items()):
        for visit in visits:
            reason, one = _placed(feature, visit, int(instant))
            if reason:
                found.refused[reason] += 1
            elif one is not None:
                candidates.append((visit, one))
    counted = candidates if not feature.cap else _capped(feature, candidates)
    found.counted, all_bins = (
        [one for _, one in some if one.bin < FIRST_BIN + bins] for some in (counted, candidates)
    )
    for visit, one in candidates:
        if one.bin < FIRST_BIN + bins:
            found.users[(one.bin - FIRST_BIN) // EPOCH_BINS, str(visit.get("user"))] += 1
    found.refused["over_cap"] = len(all_bins) - len(found.counted)
    return found


def _placed(feature: Feature, visit: Visit, open_bin: int) -> tuple[str, Counted | None]:
    """Return why a visit is refused, and where it counts. A visit that does not match is neither."""
    if not feature.matches(visit):
        return "", None
    own = int(visit["at"]) // BIN_US
    if own < FIRST_BIN:
        return "before_first_bin", None
    if own < open_bin and feature.late != "next_bin":
        return "late", None
    key, bucket, amount = feature.key_of(visit), _bucket(visit), amount_of(visit)
    if key is None:
        return "unknown_key", None
    if (feature.has("value") and bucket is None) or (feature.has("sum") and amount is None):
        return "bad_value", None
    if feature.cap and not visit.get("user"):
        return "no_user", None
    if own > open_bin + MAX_AHEAD:
        return "future", None
    units = round((min(max(amount or LEAST, LEAST), MOST) - LEAST) / feature.unit)
    return "", Counted(max(own, open_bin), key, bucket or 0, units)


def _capped(feature: Feature, candidates: list[tuple[Visit, Counted]]) -> list[tuple[Visit, Counted]]:
    """Return what counts of each user: in every epoch the earliest bins, and in a bin by the hash."""
    taken, kept = Counter[tuple[str, int]](), []
    for visit, one in sorted(candidates, key=lambda found: _order(feature, *found)):
        place = str(visit["user"]), (one.bin - FIRST_BIN) // EPOCH_BINS
        taken[place] += 1
        if taken[place] <= feature.cap:
            kept.append((visit, one))
    return kept


def _order(feature: Feature, visit: Visit, one: Counted) -> tuple[int, bytes]:
    last = one.bin + (FIRST_BIN - 1 - one.bin) % EPOCH_BINS
    [identity], _ = ids_of([str(visit["user"])], np.array([last]))
    row = feature.keys.index(one.key) if feature.keys else 0
    places, within = 1, 0
    if feature.has("sum"):
        places, within = int((MOST - LEAST) / feature.unit) + 1, one.units
    elif feature.has("value"):
        places, within = BUCKETS, one.bucket
    place = row * places + within
    return one.bin, hashlib.sha1(identity.tobytes() + place.to_bytes(4, "big")).digest()


def drawn(seed: int, bins: int, per_bin: int = 15, users: int = 12) -> Arrivals:
    """Draw visits: on time, late, early, from the future, before the first bin; many lack fields."""
    rng, arrivals = random.Random(f"visits {seed}"), defaultdict[float, list[Visit]](list)
    for bin in range(FIRST_BIN, FIRST_BIN + bins):
        for _ in range(rng.randrange(2 * per_bin)):
            # Never close to an instant at which a bin closes, so that the recount need not know the cut.
            arrivals[bin + rng.choice([0.2, 0.4, 0.6, 0.8])].append(_drawn_visit(bin, users, rng))
    return dict(arrivals)


def _drawn_visit(bin: int, users: int, rng: random.Random) -> Visit:
    own = bin + rng.choice([0, 0, 0, 0, 0, 0, -1, -3, 1, 40, -200]) + rng.random()
    cents = rng.randrange(-4_000, 60_000)
    parts: dict[str, Any] = {
        "user": f"u{rng.randrange(users)}",
        "country": rng.choice(["FR", "FR", "DE", "IT"]),
        "device": rng.choice([*DEVICES, *DEVICES, "watch"]),
        "flight": {"delay": rng.choice([round(rng.gauss(10, 30), 1), rng.randrange(-40, 90)])},
        "cart": {"amount": rng.choice([cents / 100, f"{cents / 100:.2f}", 10**30, "?"])}
        if rng.random() < 0.2
        else {"amount": cents / 100},
    }
    visit = {"at": int(own * BIN_US)}
    visit |= {name: part for name, part in parts.items() if rng.random() < 0.95}
    return visit | ({"geo": {"country": visit["country"]}} if "country" in visit else {})
