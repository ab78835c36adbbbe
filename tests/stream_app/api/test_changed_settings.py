"""The API over a stream whose settings change: one history, rows without a break, and the larger epsilon."""

from __future__ import annotations

import pytest

from dphist.tree.design import Release
from stream_app.api.admission.apart import grown, growth
from stream_app.api.answers.counts import nodes
from stream_app.api.answers.preview import preview
from stream_app.api.answers.streams import detail
from stream_app.api.replicas import Replicas
from stream_app.api.schemas import PreviewQuery
from stream_app.api.schemas.questions import NodesQuery
from tests.models.memory import MemoryStore
from tests.stream_app.published import FIRST_BIN, Published

BINS = 6


@pytest.mark.parametrize("release", ["causal", "anticipating"])
async def test_followers_and_answers_go_on_over_a_change(release: Release) -> None:
    stream = Published(MemoryStore(), epsilon="1", epoch_bins=BINS, branching=(2, 3), release=release)
    replicas = Replicas(stream.store.reader())
    await stream.open(0)
    await stream.close([5, 0, 1, 2, 3, 4])
    await replicas.refresh()
    replica = replicas.by_name[stream.name]
    before = replica.view
    assert before is not None
    copied = grown(None, growth(before, None))
    stream.change("3", (6,))
    await stream.open(1, FIRST_BIN + BINS)
    await stream.close([7, 8])
    await replica.read_news(BINS + 2)
    view = replica.view
    assert view is not None
    assert (view.span.stop - view.span.start, len(view.runs)) == (BINS + 2, 2)
    assert [seq for seq, _ in await replica.rows_after(BINS - 1)] == [BINS, BINS + 1, BINS + 2]
    assert "changed" in (await replica.rows_after(BINS))[0][1].decode()
    # The first epoch's answers do not change with the settings.
    assert view.count(before.span) == before.count(before.span)
    assert copied.count(before.span) == before.count(before.span)
    again = grown(None, growth(view, None))
    assert again.count(view.span) == view.count(view.span)
    assert view.statement is not None
    assert view.statement.epsilon == 3
    told = detail(view, 1_000_000)
    assert (told.epsilon, told.strategy_hash) == ("3", stream.strategy.hash)
    wider = preview(view, PreviewQuery(epsilon=0.5))
    assert wider.half_width[0] < wider.preview_half_width[0]
    if release == "causal":
        assert len(nodes(view, NodesQuery(epoch=0, level=2)).values) == BINS
        assert len(nodes(view, NodesQuery(epoch=1, level=1)).values) == 2
