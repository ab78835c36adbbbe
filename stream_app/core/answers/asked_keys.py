"""The keys that a question is about: one key, several together, or all but some."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product, repeat
from typing import NoReturn

from dphist.product.columns import KeyPlaces
from stream_app.core.counting.keys import ANY, KeyList

MOST_NAMES = 1_000  # in one question
_SHOWN = 10
# Labels that the service sets itself.
_TAKEN = {"stream", "key", "private", "generation", "alertname", "rule"}


class KeyNameError(ValueError):
    """A name that means no key, or a key that an earlier name means.

    Args: line, the message; name, the name at fault; known, the message's end, which lists other keys: some
        readers may not see them.
    """

    def __init__(self, line: str, name: str, known: str = "") -> None:
        super().__init__(line + known)
        self.name, self.known = name, known


@dataclass(frozen=True, slots=True)
class AskedKeys:
    """The names that a question gives. Args: names; without, whether they are left out of all keys.

    >>> AskedKeys(("FR", "DE")).text, AskedKeys(("FR",), without=True).text
    ('FR, DE', 'all but FR')
    """

    names: tuple[str, ...]
    without: bool = False

    @classmethod
    def of(cls, keys: Sequence[str], not_keys: Sequence[str] = ()) -> AskedKeys | None:
        """Return the asked keys; None if no name is given. Raises: KeyNameError if both kinds are given."""
        if keys and not_keys:
            raise KeyNameError("not_key: leave key out; name the wanted keys, or the unwanted ones", "")
        names = tuple(keys or not_keys)
        return cls(names, bool(not_keys)) if names else None

    @property
    def text(self) -> str:
        """The names in one text, as answers show them."""
        return f"{'all but ' if self.without else ''}{', '.join(self.names)}"

    def are_patterns(self, keys: KeyList) -> bool:
        """Return whether all names are patterns and no keys: they may match other keys in another list."""
        return all(ANY in name and name not in keys.place_of_label for name in self.names)

    def places(self, keys: KeyList, as_patterns: bool = False) -> KeyPlaces:
        """Return the places in the list. Args: as_patterns, also if a key has such a name.

        Guarantee: one index for a single key; otherwise rising indices, each once.
        Raises: KeyNameError for a name that is not on the list, and for a key that is named twice.
        Cost: O(names), plus O(keys) if some are left out, or patterns match many.
        """
        every, held = list[tuple[int, ...]](), 0
        for name in self.names:
            one = _places_of(keys, name, as_patterns)
            if len(self.names) == 1 and isinstance(one, int) and not self.without:
                return one
            every.append((one,) if isinstance(one, int) else one)
            held += len(every[-1])
            if held > keys.count:
                break  # a key is named twice
        together = sorted(chain.from_iterable(every))
        if len(set(together)) < len(together):
            self._refuse_doubled(every)
        if self.without:
            left_out = set(together)
            together = [place for place in range(keys.count) if place not in left_out]
        if not together:
            raise KeyNameError("every key is left out; name fewer of them", self.names[0])
        return tuple(together)

    def _refuse_doubled(self, every: Sequence[tuple[int, ...]]) -> NoReturn:
        """Raise the error for the first name whose key an earlier name has."""
        first: dict[int, str] = {}
        for name, places in zip(self.names, every, strict=False):
            for place in places:
                if place in first:
                    line = f"{name[:80]!r} is named twice; an event is counted once, so take one out"
                    if first[place] != name:
                        line = f"{name[:80]!r} has keys that {first[place][:80]!r} has too; take one out"
                    raise KeyNameError(line, name)
                first[place] = name
        raise AssertionError("no key is named twice")


def group_in_words(asked: AskedKeys, places: KeyPlaces) -> str:
    """Return a sentence that says what a group is; empty for a single key.

    >>> group_in_words(AskedKeys(("FR", "DE")), (0, 2))
    'These numbers are of 2 keys together: FR, DE.'
    """
    if isinstance(places, int):
        return ""
    names = ", ".join(asked.names[:_SHOWN])
    more = len(asked.names) - _SHOWN
    names += f" and {more:,} more" if more > 0 else ""
    keys = "1 key" if len(places) == 1 else f"{len(places):,} keys together"
    return f"These numbers are of {keys}: {'all but ' if asked.without else ''}{names}."


def label_values(keys: KeyList, place: int) -> dict[str, str]:
    """Return a key's values by field, under names that Prometheus allows; empty if there is only one field.

    >>> from stream_app.core.counting.keys import KeyField
    >>> fields = (KeyField("user.country", ("FR",), False), KeyField("stream", ("tv",), False))
    >>> label_values(KeyList(fields=fields), 0)
    {'user_country': 'FR', 'field_stream': 'tv'}
    """
    return dict(zip(_label_names(keys), keys.values_at(place).values(), strict=True))


def labels_of_keys(keys: KeyList, columns: Collection[str] = ()) -> Iterator[dict[str, str]]:
    """Yield every key's labels in Prometheus: the key, and the value of each field if there are several.

    >>> from stream_app.core.counting.keys import KeyField
    >>> fields = (KeyField("Value", ("a",), False), KeyField("start", ("N",), False))
    >>> list(labels_of_keys(KeyList(fields=fields), columns=("start", "value")))
    [{'key': 'a/N', 'field_Value': 'a', 'field_start': 'N'}]

    Args: columns, of a table that has the labels beside them; its readers know no upper and lower case.
    """
    names = _label_names(keys, columns)
    values = product(*(part.values for part in keys.fields)) if names else repeat(())
    for key, own in zip(keys.labels, values, strict=False):
        yield {"key": key, **dict(zip(names, own, strict=True))}


def _label_names(keys: KeyList, columns: Collection[str] = ()) -> tuple[str, ...]:
    """Return a label's name for each of several fields; none for a single field."""
    names: list[str] = []
    as_read = str.lower if columns else str
    taken = _TAKEN.union(columns)
    for part in keys.fields:
        name = re.sub(r"[^a-zA-Z0-9_]", "_", part.field)
        while as_read(name) in taken or not re.match(r"[a-zA-Z]", name):
            name = f"field_{name}"
        taken.add(as_read(name))
        names.append(name)
    return tuple(names)


def _places_of(keys: KeyList, name: str, as_pattern: bool) -> KeyPlaces:
    """Return the places that one name means. Raises: KeyNameError for an unknown name."""
    place = keys.place_of_label.get(name)
    if place is not None and not as_pattern:
        return place
    if ANY in name and (places := keys.matching(name)):
        return places
    stars = f", and patterns such as {keys.a_pattern}" if keys.fields else ""
    known = f"; known are {_some(keys.labels)}{stars}" if keys.labels else "; no key is shown yet"
    raise KeyNameError(f"{name[:80]!r} is not on the public list", name, known)


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:_SHOWN]) + (f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else "")
