"""Streams whose sources have a name in common are put together, also through other streams."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_app.config.source import sharing_names

NAMES = st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=3)


@given(st.lists(NAMES, max_size=12))
def test_items_are_together_if_a_chain_of_names_joins_them(named: list[set[str]]) -> None:
    reached = [[bool(one & other) for other in named] for one in named]
    for through in range(len(named)):  # Warshall's transitive closure
        for row in reached:
            if row[through]:
                row[:] = [old or new for old, new in zip(row, reached[through], strict=True)]
    expected = {frozenset(i for i, joined in enumerate(row) if joined) for row in reached}
    found = sharing_names([(names, number) for number, names in enumerate(named)])
    assert {frozenset(group) for group in found} == expected
    assert sorted(number for group in found for number in group) == list(range(len(named)))


def test_a_thousand_streams_of_one_log_are_one_group() -> None:
    assert sharing_names([(("topic:events",), number) for number in range(1_000)]) == [list(range(1_000))]
