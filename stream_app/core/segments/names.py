"""Names of a stream's segments: ``clicks``, then ``clicks@2``, ``clicks@3``.

Each change of a running stream's settings begins its next segment, which is a stream in the store. Readers
know a segment as a *generation*. A name in the configuration has no ``@``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

_SIGN = "@"


def base_of(name: str) -> str:
    """Return the configured name of a segment.

    >>> base_of("clicks@3"), base_of("clicks")
    ('clicks', 'clicks')
    """
    return name.partition(_SIGN)[0]


def number_of(name: str) -> int:
    """Return which segment a name means, from 1.

    >>> number_of("clicks@3"), number_of("clicks")
    (3, 1)
    """
    number = name.partition(_SIGN)[2]
    return int(number) if number else 1


def generation(base: str, number: int) -> str:
    """Return the name of a segment.

    >>> generation("clicks", 3), generation("clicks", 1)
    ('clicks@3', 'clicks')
    """
    return base if number == 1 else f"{base}{_SIGN}{number}"


def next_name(name: str) -> str:
    """Return the name of the segment after this one.

    >>> next_name("clicks"), next_name("clicks@2")
    ('clicks@2', 'clicks@3')
    """
    return generation(base_of(name), number_of(name) + 1)


def by_stream(names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return the segments of each stream, by its configured name, oldest first.

    >>> by_stream(["clicks@2", "visits", "clicks"])["clicks"]
    ['clicks', 'clicks@2']
    """
    found = dict[str, list[str]]()
    for name in sorted(names, key=number_of):
        found.setdefault(base_of(name), []).append(name)
    return found


def key_of(name: str, key: str) -> str:
    """Return the key of the configuration that a message about a stream names. Args: name, of a segment.

    >>> key_of("clicks@3", "time.until")
    'streams.clicks.time.until'
    """
    return f"streams.{base_of(name)}.{key}"


def address_of(name: str) -> str:
    """Return the name by which readers ask for one segment; the configured name means the newest one.

    >>> address_of("clicks"), address_of("clicks@2")
    ('clicks@1', 'clicks@2')
    """
    return f"{base_of(name)}{_SIGN}{number_of(name)}"


def asked_names(names: Sequence[str]) -> list[str]:
    """Return the names by which readers ask for the parts of a history. Args: names, of its segments.

    >>> asked_names(["visits", "clicks", "clicks@2", "pages"])
    ['visits', 'clicks@1', 'clicks@2', 'pages']
    """
    bases = list(map(base_of, names))
    return [
        address_of(name) if bases.count(base) > 1 else name for base, name in zip(bases, names, strict=True)
    ]
