"""The meaning of a stream's numbers in words: the counted events, and the number that an interval holds.

Pages, API, command line, client, rows and metrics all show these words, so no two of them can differ. A
number that is private and read as something else is worse than none: a cap per user leaves events out, a
condition, a list of keys or a number that must be there counts some events only, and a count of users counts
a user once per epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.where import in_words
from stream_app.core.declaration import Declaration
from stream_app.core.instants import period_in_words
from stream_app.core.promise import signed_in_words
from stream_app.core.visits import DAY_US

OfAmounts = Literal["sum", "mean"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a stream counts.

    Args:
        noun: plural, for headings: "events", "counted events", "users first seen", "visitors".
        counts: a sentence about the counted events.
        intervals: a sentence about the number that intervals hold.
        shape: a warning about the shape of a chart; empty if it hides nothing.
    """

    noun: str
    counts: str
    intervals: str
    shape: str = ""

    @property
    def plain(self) -> bool:
        """Whether every event counts, so that readers need no warning."""
        return self == EVERY_EVENT

    @property
    def warning(self) -> str:
        """The sentences to show with the charts; empty if every event counts."""
        return "" if self.plain else f"{self.counts} {self.shape}".rstrip()

    @property
    def sentences(self) -> str:
        """Two sentences: the counted events, and the number that intervals hold."""
        return f"{self.counts} {self.intervals}"


USERS = "users first seen"
VISITORS = "visitors"  # each on a day of their own
EVERY_EVENT = Meaning("events", "Counts events.", "Intervals are for the true number of events.")


def meaning_of(declared: Declaration) -> Meaning:
    found, keys = _meaning_of(declared), declared.keys
    if keys is None or keys.normalise is None:
        return found
    return replace(found, counts=f"{found.counts} Values of {keys.field} are keys {keys.normalise.in_words}.")


def _meaning_of(declared: Declaration) -> Meaning:
    per_user = declared.privacy.per_user
    if declared.count == "users":
        return _users(declared)
    if declared.source.origins:
        return _of_engine(declared)
    if per_user is not None:
        return _capped(declared, per_user)
    events = _events(declared)
    if events == EVERY_EVENT.noun:
        return EVERY_EVENT
    return Meaning(
        noun="counted events",
        counts=f"Counts {events}.",
        intervals="Intervals are for the true number of these events, not for the number of all events.",
    )


def counted_in(declared: Declaration | None) -> str:
    """Return the unit of a stream's counts; of an unknown stream, events."""
    if declared is None or declared.count != "users":
        return "events"
    has_days = declared.are_visitors and declared.time.bin_us >= DAY_US
    return VISITORS if has_days else USERS


def range_in_words(declared: Declaration, epochs: int) -> str:
    """Return the unit of a count over a range of time, in words. Args: epochs, how many the range touches."""
    per_user = declared.privacy.per_user
    if declared.count == "users":
        by = _by(declared)
        if declared.are_visitors:
            return f"visitors first seen in this range{by}, each once on each UTC day"
        if epochs > 1:
            return f"users first seen in this range{by}, once in each of its {epochs:,} epochs"
        return f"users first seen in this range{by}, which is within one epoch"
    if per_user is None:
        return _events(declared)
    return f"counted {_events(declared)} ({_cap(declared)})"


def epoch_in_words(declared: Declaration, start: str) -> str:
    """Return a phrase for the users that a count since the start of an epoch counts. Args: start, as text."""
    if declared.are_visitors:
        return f"visitors since {start}{_by(declared)}, each once on each UTC day"
    return f"users first seen since {start}{_by(declared)}, each counted once"


def left_out(declared: Declaration) -> str:
    """Return which events no count holds, because they lack a listed key, a number or a user."""
    per_user, number = declared.capped, _number_field(declared)
    missing = [f"whose {field} is not one of its keys" for field in _listed_only(declared)]
    missing += [f"without a number in {number}"] if number else []
    missing += [f"without a user in {per_user.field}"] if per_user else []
    return f"Events {' or '.join(missing)} are not counted." if missing else ""


def meaning_of_amounts(declared: Declaration, of: OfAmounts = "sum") -> Meaning:
    """Return the meaning of a stream's sums, or means. Args: declared, of a stream with a sum."""
    words, amounts = amounts_in_words(declared, of), declared.amounts
    assert amounts is not None  # the caller checked that the stream has a sum
    return Meaning(
        noun=words.partition(",")[0],
        counts=f"The {words}.",
        intervals=f"Intervals are for the {of} of the clamped and rounded amounts, not of the amounts as "
        f"recorded. An amount halfway between two multiples of {_decimal(amounts.unit)} goes to the even "
        f"one, counted from {_decimal(amounts.low)}.",
    )


def amounts_in_words(declared: Declaration, of: OfAmounts = "sum") -> str:
    """Return a phrase for the amounts of a sum or mean: field, clamping, rounding, and which events."""
    amounts, per_user = declared.amounts, declared.privacy.per_user
    assert amounts is not None  # streams without a sum have no such answers
    low, high, unit = map(_decimal, (amounts.low, amounts.high, amounts.unit))
    events = _events(declared, of_amounts=True)
    which = [] if events == EVERY_EVENT.noun else [f"of {events}"]
    cap = [f"of {_cap(declared)}"] if per_user else []
    said = [f"each clamped to {low} to {high} and rounded to {unit}", *which, *cap]
    return f"{of} of {amounts.field}, {', '.join(said)}"


def _capped(declared: Declaration, per_user: PerUser) -> Meaning:
    most = per_user.caps.l1
    events = "1 event" if most == 1 else f"{most:,} events"
    first = "from the user's first bin" if most == 1 else "earliest bins first"
    return Meaning(
        noun="counted events",
        counts=f"Counts at most {events} per user and {span(declared)}{in_keys(per_user)}, {first}. "
        f'The field "{per_user.field}" names the user; events without one do not count.{_only(declared)}',
        intervals="Intervals are for the number of events that count, not for the number of all events: "
        f"the other events of a user in {article(span(declared))} are left out.",
        shape=f"Charts show too few events towards the end of {article(span(declared))}, because users who "
        "have reached this cap count no more.",
    )


def _of_engine(declared: Declaration) -> Meaning:
    per_user = declared.privacy.per_user
    cap = "" if per_user is None else f", at most {per_user.caps.l1:,} per user and {span(declared)}"
    signed = signed_in_words(per_user is not None)
    return Meaning(
        noun="counted events",
        counts=f"Counts {_events(declared)} as an engine counted them{cap}. {signed}",
        intervals="Intervals are for the number that the engine counted, not for the number of all events.",
    )


def _users(declared: Declaration) -> Meaning:
    per_user = declared.privacy.per_user
    assert per_user is not None  # the configuration refuses a count of users that nothing names
    when = span(declared)
    under = ", under one of the user's keys in that bin" if declared.keys else ""
    shape = (
        f"Charts show when users are first seen in {article(when)}, not how many are active: the first "
        f"bins of {article(when)} are the highest."
    )
    noun = counted_in(declared)
    return Meaning(
        noun=noun,
        counts=f"Counts each user once per {when}, in the first bin with an event of the user{under}. "
        f'The field "{per_user.field}" names the user; events without one do not count.{_only(declared)}',
        intervals="Intervals are for the number of users first seen in a range. A range over several "
        f"{when}s counts a user once in each of them.",
        shape="" if noun == VISITORS else shape,
    )


def _cap(declared: Declaration) -> str:
    per_user = declared.privacy.per_user
    assert per_user is not None
    most = f"at most {per_user.caps.l1:,} per user and {span(declared)}{in_keys(per_user)}"
    return f"{most}, earliest bins first" if declared.capped else f"{most}, as an engine counted them"


def span(declared: Declaration) -> str:
    """Return the span of time in which a user's events are capped, without an article, such as "UTC day"."""
    return "epoch" if declared.period is None else period_in_words(declared.period)


def article(noun: str) -> str:
    """Return a span of time with its article.

    >>> [article(noun) for noun in ("epoch", "UTC day", "hour in Asia/Tokyo")]
    ['an epoch', 'a UTC day', 'an hour in Asia/Tokyo']
    """
    return f"{'an' if noun.startswith(('e', 'h')) else 'a'} {noun}"


def in_keys(per_user: PerUser) -> str:
    """Return the words about caps on keys, after a comma; empty without such caps."""
    if per_user.max_keys is None or per_user.max_per_key is None:
        return ""
    keys = "1 key" if per_user.max_keys == 1 else f"each of at most {per_user.max_keys:,} keys"
    return f", at most {per_user.max_per_key:,} in {keys}"


def _events(declared: Declaration, of_amounts: bool = False) -> str:
    """Return which events count; "events" if every event does.

    Args: of_amounts, for a sentence that names the amount, so the words need not say that there is one.
    """
    number, listed = _number_field(declared), _listed_only(declared)
    clauses = [f"with a number in {number}"] if number and not of_amounts else []
    clauses += [f"whose {_with_verb(listed)} listed"] if listed else []
    clauses += [in_words(declared.where)] if declared.where else []
    return " ".join(filter(None, ("events", ", ".join(clauses))))


def _number_field(declared: Declaration) -> str | None:
    """Return the field that must be a number for an event to count; None if there is none."""
    of_number = declared.value or declared.amounts
    return of_number.field if of_number else None


def _listed_only(declared: Declaration) -> list[str]:
    """Return the key fields whose value must be listed for an event to count."""
    return [part.field for part in declared.keys.parts if not part.other] if declared.keys else []


def _with_verb(fields: list[str]) -> str:
    """Return fields with their verb.

    >>> _with_verb(["country"]), _with_verb(["country", "device", "page"])
    ('country is', 'country, device and page are')
    """
    *first, last = fields
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"


def _by(declared: Declaration) -> str:
    events = _events(declared)
    return "" if events == EVERY_EVENT.noun else f" by {events}"


def _only(declared: Declaration) -> str:
    events = _events(declared)
    return "" if events == EVERY_EVENT.noun else f" Only {events} count."


def _decimal(number: Fraction) -> str:
    """Return an exact decimal; the configuration writes amounts so.

    >>> _decimal(Fraction(1, 100)), _decimal(Fraction(-20)), _decimal(Fraction(1, 3))
    ('0.01', '-20', '1/3')
    """
    denominator = number.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    if denominator != 1:
        return str(number)
    return f"{Decimal(number.numerator) / Decimal(number.denominator):,f}"
