"""The plan of a stream, which is made from its settings."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dphist.epochs import EpochLevels
from dphist.tree.design import Release, TreeDesign
from dphist.tree.shape import node_counts
from stream_app.config import StreamSettings, load
from stream_app.config.plans import planned
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.releases.row_values import may_be_too_large, packed
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from tests.simulator.given_noise import Draw, RememberedNoise, drawn_together
from tests.stream_app.declared import changed_stream

pytestmark = pytest.mark.slow

(FLIGHTS,) = load(Path(__file__).parents[3] / "examples" / "flights.yaml", {}).streams


def test_the_plan_spends_no_more_than_epsilon_and_covers_the_epoch():
    design = planned(changed_stream(FLIGHTS, tree={"shares": "level"})).design
    assert isinstance(design, TreeDesign)
    assert design.horizon == 8_760 <= design.shape.capacity
    assert sum(design.level_epsilons) <= 1


def test_a_tree_that_does_not_hold_the_epoch_is_refused_by_its_key():
    small = changed_stream(FLIGHTS, tree={"branching": (24, 364)})
    with pytest.raises(OperatorError, match=r"streams\.departures\.tree: "):
        planned(small)


def windows_of(window_us: int, mechanism: str, share: Fraction) -> dict[str, Any]:
    return {"mode": "window", "window_us": window_us, "mechanism": mechanism, "share": share}


def over_carriers(keys: int, buckets: int, epoch_bins: int) -> StreamSettings:
    return changed_stream(
        FLIGHTS,
        time={"epoch_bins": epoch_bins},
        keys=KeyList("carrier", tuple(f"C{number}" for number in range(keys)), False, False),
        value=Buckets("delay", Fraction(0), Fraction(1), buckets),
    )


def test_axes_are_anticipating_if_their_noise_can_be_drawn_ahead(caplog: pytest.LogCaptureFixture):
    month = planned(over_carriers(20, 256, 720))
    assert month.kind.product is not None
    assert month.design.release == month.kind.product.time.release == "anticipating"
    assert caplog.text == ""
    wide = planned(over_carriers(2_000, 256, 720))
    assert wide.kind.product is not None
    assert wide.design.release == wide.kind.product.time.release == "causal"
    assert "released causally" in caplog.text


def width_warnings(records: list[logging.LogRecord]) -> list[str]:
    """Return the warnings about rows that are too wide for the witness."""
    told = [record.getMessage() for record in records]
    return [message for message in told if "more than the witness keeps" in message]


@pytest.mark.parametrize(("keys", "told"), [(20, 0), (300, 1)])
def test_rows_too_wide_for_the_witness_are_logged_once(
    keys: int, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Every start, ``plan`` and ``check-config`` plan each stream several times, but log the warning once."""
    wide = replace(over_carriers(keys, 1_000, 720), name=f"over {keys} keys")
    for _ in range(2):
        planned(wide)
    messages = width_warnings(caplog.records)
    assert len(messages) == told
    for message in messages:
        assert message.startswith(f"stream over {keys} keys: a bin may release ")
        assert "fewer keys or buckets, or keep backups of Redis" in message


@pytest.mark.parametrize(("keys", "too_large"), [(100, False), (1_000, True)])
def test_width_that_is_logged_is_a_width_that_the_witness_refuses(keys: int, too_large: bool) -> None:
    """The values of nodes have a standard deviation of 1,000 events; published ones are in units of 2^-16."""
    kind = planned(replace(over_carriers(keys, 1_000, 2), name=f"{keys} keys")).kind
    rng = np.random.default_rng(1)
    units = {table: 2**16 if table == PUBLISHED else 1 for table in kind.tables}
    rows = [rng.normal(0, 1_000 * units[table], (1, width)) for table, width in kind.tables.items()]
    assert may_be_too_large(kind) == too_large
    assert (packed([row.astype(np.int64) for row in rows]) == b"") == too_large


def test_noise_that_takes_longer_to_draw_than_to_use_is_refused():
    fast = over_carriers(200, 256, 100)
    fast = changed_stream(fast, time={"bin_us": 500_000})
    with pytest.raises(OperatorError, match="fewer keys or buckets, or longer bins"):
        planned(fast)


def test_windows_take_their_share_and_the_tree_the_rest():
    window = windows_of(24 * FLIGHTS.declared.time.bin_us, "dawa", Fraction(3, 4))
    value = Buckets("delay", Fraction(0), Fraction(1), 10, **window)
    keys = KeyList("carrier", ("AA", "UA"), True, False)
    over_values = planned(changed_stream(FLIGHTS, keys=keys, value=value))
    assert over_values.kind.windows is not None
    assert (over_values.kind.windows.histograms, over_values.kind.windows.buckets, over_values.width) == (
        3,
        10,
        30,
    )
    assert over_values.kind.windows.epsilon == FLIGHTS.declared.privacy.epsilon * Fraction(3, 4)
    assert over_values.design.epsilon == FLIGHTS.declared.privacy.epsilon
    assert sum(over_values.design.shares) <= Fraction(1, 4)
    over_keys = planned(changed_stream(FLIGHTS, keys=structs.replace(keys, **window)))
    assert over_keys.kind.windows is not None
    assert (over_keys.kind.windows.histograms, over_keys.kind.windows.buckets) == (1, 3)


def test_windows_that_take_longer_to_release_than_half_a_bin_are_refused():
    """Drawing DAWA's noise for 30 x 1,024 buckets takes 2.8 s of processor time."""
    keys = KeyList("carrier", tuple(f"C{i}" for i in range(29)), True, False)

    def seconds(bin_s: int, mechanism: str) -> StreamSettings:
        window = windows_of(bin_s * 1_000_000, mechanism, Fraction(4, 5))
        value = Buckets("delay", Fraction(0), Fraction(1), 1024, **window)
        return changed_stream(FLIGHTS, time={"bin_us": bin_s * 1_000_000}, keys=keys, value=value)

    with pytest.raises(OperatorError, match=r"streams.departures: .* s of a bin of 1 s; .*another mechanism"):
        planned(seconds(1, "dawa"))
    assert planned(seconds(3600, "dawa")).kind.windows is not None
    assert planned(seconds(60, "identity")).kind.windows is not None


@pytest.mark.parametrize("tree", [{}, {"release": "causal"}, {"branching": (24, 365)}, {"shares": "level"}])
def test_every_new_stream_has_a_share_for_every_level(tree: dict[str, Any]) -> None:
    strategy = planned(changed_stream(FLIGHTS, tree=tree))
    assert len(strategy.design.shares) == strategy.design.shape.height
    again = Strategy.from_json(strategy.to_json())
    assert (again, again.hash, again.to_json()) == (strategy, strategy.hash, strategy.to_json())


def test_a_stored_path_that_adds_up_to_more_than_one_is_refused() -> None:
    fields = json.loads(planned(FLIGHTS).to_json())
    design = json.loads(fields["design"])
    design["shares"][0] = str(Fraction(design["shares"][0]) + Fraction(1, 10**12))
    fields["design"] = json.dumps(design)
    with pytest.raises(ValueError, match="shares: they add up to 1000000000001/1000000000000 > 1"):
        Strategy.from_json(json.dumps(fields))


def test_earlier_strategies_keep_their_text() -> None:
    """A running stream is identified by the hash of this text."""
    text = (
        b'{"declared":{"late":"next_bin","privacy":{"epsilon":"1","neighbours":"add_remove","private":true,'
        b'"unit":"event"},"source":{"format":"ndjson","name":"log","replay":null},"time":{"bin_us":10,'
        b'"epoch_bins":4,"field":"at","first_us":null,"format":"us","grace_us":0,"max_ahead_bins":1,'
        b'"timezone":null},"tree":{"branching":null,"release":"anticipating","shares":null,'
        b'"workload":"prefix"}},"design":"{\\"branching\\":[2,2],\\"epsilon\\":\\"1/1\\",\\"horizon\\":4,'
        b'\\"neighbours\\":\\"add_remove\\",\\"release\\":\\"anticipating\\",\\"sensitivity\\":1,\\"shares\\":'
        b'[\\"1/2\\",\\"1/2\\"]}","source":"log","stream":"s","v":1,"width":1}'
    )
    assert Strategy.from_json(text).to_json() == text


def test_every_path_of_drawn_noise_costs_at_most_epsilon() -> None:
    """Grey box: add up the costs of the drawn noise along every path, in exact fractions."""
    strategy = planned(FLIGHTS)
    design, draws = strategy.design, list[Draw]()
    for _ in strategy.kind.draw_pages(RememberedNoise(1, draws)):
        pass
    losses = [[Fraction(0)] * count for count in node_counts(design.shape, design.horizon)]
    for call, draw in zip(drawn_together(design), draws, strict=True):
        assert draw.scale == call.scale
        assert len(draw.values) == len(call.nodes)
        for node in call.nodes:
            losses[call.level - 1][node] = Fraction(design.sensitivity) / draw.scale
    widths = design.shape.widths[1:]
    largest = max(
        sum(losses[level][bin // width] for level, width in enumerate(widths))
        for bin in range(design.horizon)
    )
    assert Fraction(999, 1000) < largest <= design.epsilon


WEEKS = changed_stream(FLIGHTS, time={"epoch_bins": 168}, tree={"epochs": 16})


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_levels_over_epochs_take_their_part_and_the_epoch_the_rest(release: Release) -> None:
    strategy = planned(changed_stream(WEEKS, tree={"release": release}))
    levels = strategy.kind.levels
    assert levels is not None
    assert levels.epoch == strategy.design
    assert strategy.epsilon == FLIGHTS.declared.privacy.epsilon
    assert strategy.design.epsilon + sum(levels.epsilons) <= strategy.epsilon
    assert Strategy.from_json(strategy.to_json()) == strategy
    assert strategy.declared.tree.epochs == 16
    alone = planned(changed_stream(WEEKS, tree={"release": release, "epochs": None}))
    assert alone.kind.levels is None
    added = EpochLevels(alone.design, alone.epsilon)
    assert levels.mean_squared_error(16) < 0.6 * added.mean_squared_error(16)


def test_levels_over_epochs_are_refused_with_axes_or_users() -> None:
    keys = KeyList("carrier", ("AA", "UA"), True, False)
    with pytest.raises(OperatorError, match=r"departures\.tree\.epochs: .*keys and values"):
        planned(changed_stream(WEEKS, keys=keys))
    with pytest.raises(OperatorError, match=r"departures\.tree\.epochs: is for the event unit"):
        planned(changed_stream(WEEKS, privacy={"unit": PerUser("user", 3)}))


@pytest.mark.parametrize(
    ("caps", "most"),
    [
        ("max_events: 7", 7),
        ("max_keys: 3, max_per_key: 2", 6),
        ("max_keys: 3, max_per_key: 2, max_events: 5", 5),
        ("max_keys: 3, max_per_key: 2, max_events: 9", 6),
    ],
)
@pytest.mark.parametrize("neighbours", ["add_remove", "substitute"])
@pytest.mark.parametrize("axis", ["", ", mode: window, window: 12h"])
def test_noise_is_for_all_events_of_a_user_that_the_caps_let_count(
    tmp_path: Path, caps: str, most: int, neighbours: str, axis: str
) -> None:
    text = f"""
streams:
  s:
    source: {{file: a.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 24h}}
    privacy: {{epsilon: 1, neighbours: {neighbours}, unit: {{user: u, {caps}}}}}
    keys: {{field: k, list: [a, b, c]{axis}}}
"""
    (tmp_path / "app.yaml").write_text(text)
    design = planned(load(tmp_path / "app.yaml", {}).streams[0]).design
    assert design.sensitivity == most * (2 if neighbours == "substitute" else 1)
