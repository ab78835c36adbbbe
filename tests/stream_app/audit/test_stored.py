"""The offline audit: an honest deployment passes; each record that was changed, lost or added is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from stream_app.audit.collecting import collect
from stream_app.audit.stored import Stored, check_source, check_stored, entry_faults
from stream_app.config import load_text
from stream_app.core.ledger import statement
from stream_app.core.promise import Statement
from stream_app.core.records import LedgerEntry, WitnessRow
from stream_app.wiring.storage import new_ledger
from stream_app.wiring.workers import run_worker

pytestmark = pytest.mark.redis

BINS = 12
CONFIG = """
redis: {url: "embedded:redis"}
ledger: {file: ledger.ndjson}
streams:
  s:
    source:
      file: events.ndjson
      replay: {from: "2024-01-01T00:00:00Z", to: "2024-01-01T12:00:00Z", speed: max}
    time: {field: at, format: s, bin: 1h, grace: 5m, epoch: 6h}
    privacy: {epsilon: 1}
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Return what a replay of two epochs left behind."""
    directory = tmp_path_factory.mktemp("audited")
    events = [{"at": 1_704_067_200 + 360 * number} for number in range(120)]
    (directory / "events.ndjson").write_text("".join(json.dumps(event) + "\n" for event in events))
    (directory / "app.yaml").write_text(CONFIG)
    settings = load_text(CONFIG, directory / "app.yaml", {})

    async def made() -> list[Stored]:
        await new_ledger(settings)
        await run_worker(settings)
        return await collect(settings)

    (found,) = asyncio.run(made())
    return found


def test_honest_deployment_passes_every_check(stored: Stored) -> None:
    checks = list(check_stored(stored))
    assert [check.passed for check in checks] == [True] * 7
    assert len(stored.rows) == stored.visible_seq == BINS
    assert len(stored.witness) == BINS
    assert len(stored.epochs) == 2
    assert [check.passed for check in check_source("file:events.ndjson", stored.ledger)] == [True] * 2


def faults(stored: Stored) -> list[tuple[str, str]]:
    return [(check.asked, check.found) for check in check_stored(stored) if check.passed is False]


def without_row(stored: Stored) -> Stored:
    return replace(stored, rows=[row for row in stored.rows if row[0] != 5])


def other_row(stored: Stored) -> Stored:
    rows = list(stored.rows)
    message = json.loads(rows[4][1])
    rows[4] = 5, json.dumps(message | {"estimate": [0.0]}).encode()
    return replace(stored, rows=rows)


def bin_released_again(stored: Stored) -> Stored:
    rows = list(stored.rows)
    message = json.loads(rows[-1][1])
    again = json.dumps(message | {"seq": BINS + 1, "bin": message["bin"] - 3}).encode()
    return replace(stored, rows=[*rows, (BINS + 1, again)])


def witnessed_twice(stored: Stored) -> Stored:
    row = stored.witness[3]
    return replace(stored, witness=[*stored.witness, WitnessRow(row.seq, row.row + b" ")])


def not_witnessed(stored: Stored) -> Stored:
    return replace(stored, witness=stored.witness[:-1])


def other_value(stored: Stored) -> Stored:
    tables = {key: table.copy() for key, table in stored.tables.items()}
    tables[1, "published"][2, 0] += 1
    return replace(stored, tables=tables)


def other_node(stored: Stored) -> Stored:
    tables = {key: table.copy() for key, table in stored.tables.items()}
    np.ravel(tables[0, "1"])[0] -= 1
    return replace(stored, tables=tables)


def entry_lost(stored: Stored) -> Stored:
    return replace(stored, ledger=[entry for entry in stored.ledger if entry.epoch != 1])


def entry_lost_outside(stored: Stored) -> Stored:
    return replace(stored, outside=())


def entry_cheaper(stored: Stored) -> Stored:
    return replace(stored, ledger=[replace(entry, epsilon="1/2") for entry in stored.ledger])


def entry_of_less_noise(stored: Stored) -> Stored:
    return replace(stored, ledger=[replace(entry, delta="1/10", mu="1/9") for entry in stored.ledger])


def entry_of_another_unit(stored: Stored) -> Stored:
    return replace(stored, ledger=[replace(entry, neighbours="substitute") for entry in stored.ledger])


def other_configuration(stored: Stored, fact: str = "neighbours", value: str = "substitute") -> Stored:
    assert isinstance(stored.configured, dict)
    privacy = stored.configured["privacy"] | {fact: value}
    return replace(stored, configured=stored.configured | {"privacy": privacy})


@pytest.mark.parametrize(
    ("change", "asked", "found"),
    [
        (without_row, "The chain has no gap", "row 5 has the number 6"),
        (other_row, "The chain has no gap", "row 6 does not follow row 5"),
        (other_row, "What readers see is in the witness", "row 5 differs from the witness"),
        (bin_released_again, "No bin was released twice", "was released 2 times"),
        (witnessed_twice, "No bin was released twice", "row 4 was witnessed with two contents"),
        (not_witnessed, "What readers see is in the witness", "row 12 is visible and not witnessed"),
        (other_value, "Every published value follows", "table published of epoch 1 differs"),
        (other_node, "Every published value follows", "table 1 of epoch 0 differs"),
        (entry_lost, "Each epoch is in the ledger", "epoch 1 is not in the ledger"),
        (entry_lost_outside, "Each epoch is in the ledger", "epoch 0 is not in the ledger outside the store"),
        (entry_cheaper, "Each epoch is in the ledger", "with epsilon 1/2, not 1"),
        (entry_of_less_noise, "Each epoch is in the ledger", "with mu 1/9, not None"),
        (entry_of_another_unit, "Each epoch is in the ledger", "with neighbours substitute, not add_remove"),
        (other_configuration, "The configuration is the one", "privacy.neighbours was "),
    ],
)
def test_change_is_found(stored: Stored, change: Callable[[Stored], Stored], asked: str, found: str) -> None:
    assert any(why.startswith(asked) and found in what for why, what in faults(change(stored)))


def test_a_change_that_a_start_makes_is_no_fault(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.audit.stored.may_change", lambda fact, _running: fact.endswith("epsilon"))
    changed = other_configuration(stored, "epsilon", "2")
    assert faults(changed) == []
    assert [check.found for check in check_stored(changed)][-1] == (
        'with the next segment: privacy.epsilon was "1" and is "2"'
    )


def test_store_and_witness_that_were_lost_begin_with_one_later_row(stored: Stored) -> None:
    """The store lost its old rows by retention, the witness was filled from it, and fills it again."""
    lost = replace(stored, rows=stored.rows[6:], witness=stored.witness[6:])
    chain = "The chain has no gap, and each row holds the hash of the row before"
    assert chain not in dict(faults(lost))
    assert chain in dict(faults(replace(lost, witness=stored.witness))), "the witness has earlier rows"
    assert chain in dict(faults(replace(lost, rows=stored.rows[7:])))


def test_noise_too_small_for_the_statement_is_found(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(stored.strategy), "epsilon", Fraction(1, 2))
    [(asked, found), *_] = [fault for fault in faults(stored) if "noise" in fault[0]]
    assert asked == "The noise is large enough for the stated epsilon"
    assert found == "the scales cost 1"


def test_total_below_the_ledger_is_found(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(source: str, entries: Sequence[LedgerEntry]) -> Statement:
        told = statement(source, entries)
        return replace(told, cost=replace(told.cost, epsilon=Fraction(1, 2)))

    monkeypatch.setattr("stream_app.audit.stored.statement", lower)
    total, _ = check_source("file:events.ndjson", stored.ledger)
    assert total.passed is False


def test_entry_of_a_build_that_did_not_write_the_zone_is_right(stored: Stored) -> None:
    right = replace(stored.ledger[0], time="at iso8601 Europe/Paris")
    for time, faults in (("at iso8601", 0), (None, 0), ("at iso8601 UTC", 1), ("at s", 1)):
        assert len(list(entry_faults(replace(right, time=time), right, "the ledger"))) == faults
