"""Alert rules over keys that nobody listed: one for each key that is shown."""

from __future__ import annotations

from typing import Any

import pytest

from stream_app.core.alerts.conditions import parse_condition
from stream_app.core.alerts.ranges import Ranges
from stream_app.core.alerts.rules import Rule
from stream_app.loops.alert_watch import AlertWatcher
from tests.models.memory_alerts import MemoryAlertStore
from tests.stream_app.declared import BIN_US, FIRST_BIN
from tests.stream_app.found_keys import APPROXIMATE, finding_world, view_of
from tests.stream_app.loops.test_alert_watch import told_by
from tests.world import World

BUSY = "sum(pages[each], 20s) > 5"
DEAR = f"total(pages[each], 20s) > {5 * 20}"  # each visit has an amount of 20


def rule(text: str) -> Rule:
    return Rule("busy", text, parse_condition(text), summary="a page is busy")


def visit(world: World, bin: int, page: str, times: int) -> None:
    """Let users visit a page in a bin, which then becomes visible."""
    world.until(bin + 0.2)
    world.write(*({"at": int((bin + 0.1) * BIN_US), "page": page, "amount": 20} for _ in range(times)))
    world.until(bin + 1.9)


def looked(world: World, store: MemoryAlertStore, text: str) -> list[tuple[str, str, int]]:
    """Return what a new watcher, after all earlier ones, has told by now."""
    world.run(AlertWatcher([rule(text)], world.public_reader(), store).look())
    return world.run(told_by(store))


@pytest.mark.parametrize(("text", "privacy"), [(BUSY, {}), (DEAR, {}), (BUSY, APPROXIMATE)])
def test_each_found_key_has_a_rule_until_it_is_not_shown_any_more(text: str, privacy: dict[str, Any]) -> None:
    """Epochs have six bins. A key is listed for one epoch more than the one that finds it."""
    with finding_world(epochs=1, sums=text is DEAR, privacy=privacy) as world:
        world.start()
        store = MemoryAlertStore()
        world.until(FIRST_BIN + 1.5)
        assert looked(world, store, text) == []
        visit(world, FIRST_BIN + 1, "/a", 9)
        assert looked(world, store, text) == [("busy[/a]", "firing", 2)]
        visit(world, FIRST_BIN + 2, "/b'\"", 9)  # a name that no rule can be written for
        visit(world, FIRST_BIN + 3, "/c", 3)
        visit(world, FIRST_BIN + 4, "/c", 4)
        told = [("busy[/a]", "resolved", 4), ("busy[/c]", "firing", 5)]
        assert looked(world, store, text)[1:] == told
        visit(world, FIRST_BIN + 6, "/c", 9)  # over the edge of two epochs with other keys
        visit(world, FIRST_BIN + 10, "/c", 9)
        told += [("busy[/c]", kind, seq) for kind, seq in (("resolved", 6), ("firing", 7), ("resolved", 9))]
        assert looked(world, store, text)[1:] == [*told, ("busy[/c]", "firing", 11)]
        visit(world, FIRST_BIN + 11, "/c", 9)
        assert looked(world, store, text)[-1] == ("busy[/c]", "resolved", 12)  # it must be found again


def test_a_rule_names_a_key_that_is_found_later() -> None:
    with finding_world(epochs=1) as world:
        world.start()
        store, text = MemoryAlertStore(), "count(pages['/late']) > 5"
        visit(world, FIRST_BIN + 1, "/a", 9)
        assert looked(world, store, text) == []
        visit(world, FIRST_BIN + 3, "/late", 9)
        assert looked(world, store, text) == [("busy", "firing", 4)]


def test_a_rule_on_other_has_its_own_error_beside_a_rule_on_a_key() -> None:
    """The noise of other is that of the total and of all shown keys."""
    with finding_world(privacy={"epsilon": 2}, epsilon=1.0) as world:
        world.start()
        visit(world, FIRST_BIN + 1, "/a", 200)
        view = world.run(view_of(world.public_reader()))
        of_both, reaches = Ranges(view), dict[str, float | None]()
        for key in ("/a", "other"):
            condition = parse_condition(f"sum(pages['{key}'], 20s) > 5")
            question = of_both.question(condition)
            assert question is not None
            reaches[key] = of_both.reach(condition, question)
            assert reaches[key] == Ranges(view).reach(condition, question)
        assert reaches["/a"] != reaches["other"]
