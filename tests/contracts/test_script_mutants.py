"""Each script is run with one check broken, and the contract's test of that check must fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import NamedTuple

import pytest

from dphist.caps import Caps
from stream_app.core.records import Reply
from stream_app.state import epochs, exact_counts, key_notes, redis_store, taking_cuts
from stream_app.state.connection import Script, script, script_text
from tests.contracts import test_ahead as ahead
from tests.contracts import test_apply_together as changes_together
from tests.contracts import test_cap as cap
from tests.contracts import test_caps_of_keys as caps_of_keys
from tests.contracts import test_found_keys as found_keys
from tests.contracts import test_retention as retention
from tests.contracts import test_stop as stop
from tests.contracts import test_store as contract
from tests.contracts import test_user_keys as user_keys
from tests.contracts import test_users_of_many_cells as busy
from tests.contracts.conftest import Servers, Stores, over
from tests.contracts.examples import FIRST_BIN, apply

pytestmark = [pytest.mark.redis, pytest.mark.anyio]


class Mutant(NamedTuple):
    """One wrong line of a script, and the test that must catch it."""

    right: str
    wrong: str
    caught_by: Callable[[Stores], Awaitable[None]]


def patching(test: Callable[..., Awaitable[None]], *given: object) -> Callable[[Stores], Awaitable[None]]:
    """Return a test with its other arguments, and with a way to patch."""

    async def run(stores: Stores) -> None:
        with pytest.MonkeyPatch.context() as patch:
            await test(stores, *given, patch)

    return run


async def shards_are_worked_off(stores: Stores) -> None:
    await cap.test_each_window_counts_anew(stores)
    assert not await cap.untallied(stores)


async def busy_users_count_as_others(stores: Stores) -> None:
    with pytest.MonkeyPatch.context() as patched:
        await busy.test_what_counts_of_a_busy_user_is_what_one_script_would_choose(stores, patched, 1)


def applying(reply: Reply, **how: object) -> Callable[[Stores], Awaitable[None]]:
    """Return the test that a change is refused and changes nothing."""
    change = apply(5, 9, contract.CELLS, **how)  # type: ignore[arg-type]
    return partial(contract.TestApply().test_refusal_changes_nothing, change=change, reply=reply)


stale_cuts_are_refused = applying(Reply.CUTS_CHANGED, last_cut_bin=FIRST_BIN)
due_cuts_are_refused = applying(Reply.CUTS_CHANGED, due_us=1)
other_strategies_are_refused = applying(Reply.STRATEGY, strategy_hash="0" * 64)
engines_close_bins = changes_together.test_rows_of_an_engine_close_bins_in_the_step_that_counts_them
users_are_in_one_bucket = patching(cap.test_users_are_counted_by_all_of_their_records, 64)
users_that_are_jumped_over_are_forgotten = partial(
    cap.test_users_of_windows_that_are_jumped_over_are_forgotten, first_bin=cap.LAST + 99, kept=[]
)
records_of_an_older_build_count = partial(cap.test_records_of_an_older_build_are_read, older=60)
cells_are_in_order_of_rank, caps_of_keys_hold, one_key_counts, caps_of_keys_and_events_hold = (
    partial(caps_of_keys.test_counts_are_those_of_the_rule, caps=caps)
    for caps in (Caps(3), Caps(None, 2, 1), Caps(None, 1, 3), Caps(4, 3, 2))
)
single_records_use_the_cap_up = caps_of_keys.test_a_user_with_a_record_a_bin_uses_the_caps_up
users_bring_keys, users_with_a_small_cap_bring_keys, users_with_few_keys_bring_keys = (
    partial(found_keys.test_a_user_brings_so_many_keys_whatever_their_numbers, per_user=most, caps=caps)
    for most, caps in ((3, found_keys.EVERY_EVENT), (2, Caps(2)), (3, found_keys.IN_TWO_KEYS))
)
keys_without_cells_are_chosen = partial(
    found_keys.test_keys_that_do_not_stay_count_as_other_and_keep_their_turn, caps=Caps(2)
)
keys_are_merged = patching(
    found_keys.test_a_user_counts_in_the_same_keys_however_they_are_numbered_and_merged
)
many_known_keys_wait = patching(found_keys.test_what_one_user_has_in_many_known_keys_stays_short)


MUTANTS: dict[str, dict[str, Mutant]] = {
    "apply": {
        "a batch is applied twice": Mutant(
            "if position ~= one.expected then",
            "if false then",
            contract.TestApply().test_repeated_call_counts_once,
        ),
        "a batch is binned against older cuts": Mutant(
            "if last ~= one.last_cut_bin then", "if false then", stale_cuts_are_refused
        ),
        "a due cut is not taken first": Mutant(
            "if one.due_us ~= '' then", "if false then", due_cuts_are_refused
        ),
        "a batch is binned below a cut that is not known": Mutant(
            "return is_listed(one.cuts, one.last_cut_bin)",
            "return true",
            contract.TestApply().test_records_below_a_known_cut_count_whatever_cuts_follow,
        ),
        "rows of an engine close nothing": Mutant(
            "local base_bin = one.closes ~= 'None' and one.closes", "local base_bin", engines_close_bins
        ),
        "the origins of an engine are forgotten": Mutant(
            "if one.origins then redis.call(", "if false then redis.call(", engines_close_bins
        ),
        "counts under another strategy": Mutant(
            "if held[1] ~= strategy_hash then", "if false then", other_strategies_are_refused
        ),
        "counts by the rules of an epoch that was lost": Mutant(
            "if held[5] ~= epoch then",
            "if false then",
            contract.TestApply().test_rules_of_an_earlier_epoch_count_nothing,
        ),
        "a sealed bin changes": Mutant(
            "if bin <= sealed_bin then",
            "if bin < sealed_bin then",
            contract.TestSeal().test_sealed_bins_never_change,
        ),
        "a user with very many cells loses one that counts": Mutant(
            "for i = most + 1, #fields do", "for i = most, #fields do", busy_users_count_as_others
        ),
        "deleted cells are not in the operator's count": Mutant(
            "over = over + numbers[fields[i]]", "over = over + 1", busy_users_count_as_others
        ),
        "merged entries of a place are not added up": Mutant(
            "numbers[field] = (numbers[field] or 0) + number",
            "numbers[field] = number",
            busy_users_count_as_others,
        ),
        "users of another key are counted": Mutant(
            "mark and mark ~= one.marks[i]", "false", cap.test_under_another_key_nothing_counts
        ),
        "a window counts under a key that is not noted": Mutant(
            "user_key_of(users_key(one, i), window, noted_keys)",
            "redis.call('HGET', users_key(one, i), 'key mark')",
            user_keys.test_what_is_noted_holds_where_nobody_has_counted,
        ),
        "a new key holds for its last old window, too": Mutant(
            "if tonumber(window) > tonumber(after) then",
            "if tonumber(window) >= tonumber(after) then",
            user_keys.test_what_is_noted_holds_where_nobody_has_counted,
        ),
        "records are set aside under any key": Mutant(
            "if mark and mark ~= own then return false end",
            "",
            user_keys.test_records_set_aside_count_under_the_key_of_their_window,
        ),
        "records set aside lose their key": Mutant(
            "mark ~= one.ahead_mark and name .. ' ' .. digits_of(mark) or name",
            "name",
            user_keys.test_records_set_aside_count_under_the_key_of_their_window,
        ),
        "a cut that is reached holds the seal": Mutant(
            "tonumber(cut_position) > tonumber(one.new)",
            "tonumber(cut_position) >= tonumber(one.new)",
            contract.TestCuts().test_cuts_ahead_of_the_position_stay_until_it_passes_them,
        ),
        "records in a user's first keys are left out": Mutant(
            "i > most and 0 or of_key", "i >= most and 0 or of_key", keys_are_merged
        ),
        "records in keys that others have brought all wait": Mutant(
            "local over, left = most > 0 and", "local over, left = false and", many_known_keys_wait
        ),
        "what is set aside is lost": Mutant(
            "if one.aside then set_aside(one) end", "", ahead.test_a_late_cut_accepts_what_its_open_bin_allows
        ),
        "a stopped stream counts": Mutant(
            "if is_stopped and (#one.bins > 0 or one.aside) then",
            "if false then",
            stop.test_a_stopped_stream_reads_on_and_counts_nothing,
        ),
    },
    "tally": {
        "a user counts once too often": Mutant(
            "math.max(most_events - before, 0)",
            "math.max(most_events + 1 - before, 0)",
            cap.test_events_of_a_user_count_up_to_the_cap_in_a_window,
        ),
        "a user's cells are chosen as they come": Mutant(
            "a.rank < b.rank", "a.field < b.field", cells_are_in_order_of_rank
        ),
        "what a user used up of a window is not subtracted": Mutant(
            "math.max(most_events - before, 0)",
            "most_events",
            cap.test_events_of_a_user_count_up_to_the_cap_in_a_window,
        ),
        "a user counts in one key too many": Mutant(
            "#list / 2 >= most_keys", "#list / 2 > most_keys", one_key_counts
        ),
        "a user counts once too often in a key": Mutant(
            "most_of_key - in_key", "most_of_key + 1 - in_key", caps_of_keys_hold
        ),
        "what a user used up over all keys is not subtracted": Mutant(
            "room = room - list[i + 1]", "room = room", caps_of_keys_and_events_hold
        ),
        "what a user used up is not subtracted from a single record": Mutant(
            "left = left - list[i + 1]", "left = left", single_records_use_the_cap_up
        ),
        "a user's keys are chosen as they come": Mutant(
            "if not all_fit(records, list, place_of, room) then", "if false then", caps_of_keys_hold
        ),
        "new keys come before known ones": Mutant(
            "and '0' or '1'",
            "and '1' or '0'",
            caps_of_keys.test_a_key_that_counts_already_comes_before_new_ones,
        ),
        "a page of a user's keys is forgotten": Mutant(
            "if #list == NUMBERS_OF_PAGE then",
            "if false then",
            caps_of_keys.test_many_keys_of_a_user_are_kept_over_bins,
        ),
        "entries of a user's place in several slices are not added up": Mutant(
            "numbers[i] = numbers[i] + number", "numbers[i] = number", caps_of_keys_hold
        ),
        "entries of a user's further places in several slices are not added up": Mutant(
            "more[place] = (more[place] or 0) + number", "more[place] = number", caps_of_keys_hold
        ),
        "entries of an older build's shard are forgotten": Mutant(
            "if held[i] ~= '' then", "if false then", records_of_an_older_build_count
        ),
        "a user stays in the buckets on the way": Mutant(
            "if from then moved[from]", "if false then moved[from]", users_are_in_one_bucket
        ),
        "users are counted by what counts": Mutant(
            "kept = before + total", "kept = before + taken", users_are_in_one_bucket
        ),
        "users of one shard move only": Mutant("moved[cells] or {}", "{}", users_are_in_one_bucket),
        "tallied records stay": Mutant("redis.call('UNLINK', unpack(keys))", "", shards_are_worked_off),
        "bins are tallied before they are sealed": Mutant(
            "if tonumber(up_to_bin) > tonumber(held[2]) then",
            "if false then",
            cap.test_a_sealed_bin_is_neither_read_nor_released_before_it_is_tallied,
        ),
        "a user brings a key that is public": Mutant(
            "and not shown[place - first_unlisted] and", "and", users_bring_keys
        ),
        "a user brings one key too many": Mutant(
            "per_user - #packed / 4, {}", "per_user + 1 - #packed / 4, {}", users_bring_keys
        ),
        "a user brings keys in the order of their numbers": Mutant(
            "rank = rank_of(user, key .. '\\0\\0\\0\\0')}", "rank = place}", users_bring_keys
        ),
        "a key beyond a user's first ones counts unless the shard was merged": Mutant(
            "if keyed then records, over = of_first_keys(user, records) end", "", keys_are_merged
        ),
        "users with few keys bring none": Mutant(
            "if keyed then bring(user, counted, window_users, added) end", "", users_with_few_keys_bring_keys
        ),
        "a user brings a key in each bin": Mutant(
            "brought[struct.unpack('>I4', packed, at)] = true",
            "",
            found_keys.test_a_user_brings_a_key_once_over_all_bins,
        ),
        "a user brings what another worker has named": Mutant(
            "held[3] ~= epoch or held[4] ~= seq",
            "held[3] ~= epoch",
            found_keys.test_other_workers_decisions_are_known_before_users_bring_keys,
        ),
        "a user brings a key that does not stay": Mutant(
            "(stays or shown[number])", "true", keys_without_cells_are_chosen
        ),
        "a public key that does not stay has no cell": Mutant(
            "(stays or shown[number])", "stays", keys_without_cells_are_chosen
        ),
    },
    "release": {
        "a bin that is not tallied is released": Mutant(
            "if redis.call('ZCOUNT', untallied, '-inf', last_bin) > 0 then",
            "if false then",
            cap.test_a_sealed_bin_is_neither_read_nor_released_before_it_is_tallied,
        ),
        "what was seen of users outlives its window": Mutant(
            "redis.call('UNLINK', KEYS[GIVEN_KEYS + bins + i])",
            "",
            cap.test_users_are_forgotten_with_the_last_bin_of_their_window,
        ),
        "a found key has no past": Mutant(
            "else delete_cells(KEYS[GIVEN_KEYS + i], shown)",
            "else redis.call('UNLINK', KEYS[GIVEN_KEYS + i])",
            found_keys.test_counts_of_keys_stay_until_the_epoch_ends,
        ),
        "exact counts of found keys stay": Mutant(
            "else delete_cells(KEYS[GIVEN_KEYS + i], shown)",
            "",
            found_keys.test_counts_of_keys_stay_until_the_epoch_ends,
        ),
        "the past of found keys stays": Mutant(
            "do delete_cells(KEYS[i], past_cells) end",
            "do end",
            found_keys.test_the_past_of_a_key_leaves_with_the_row_that_names_it,
        ),
        "two leaders release a bin": Mutant(
            "or held[3] ~= expected_seq or held[4] ~= expected_head",
            "or false",
            contract.TestRelease().test_refusal_changes_nothing,
        ),
        "an unsealed bin is released": Mutant(
            "if tonumber(last_bin) > tonumber(held[6]) then",
            "if false then",
            contract.TestRelease().test_refusal_changes_nothing,
        ),
        "an ended epoch releases": Mutant(
            "redis.call('HEXISTS', epochs, epoch .. ':end_reason') == 1",
            "false",
            contract.TestOpenEpoch().test_ended_epoch_releases_nothing_more,
        ),
        "exact counts outlive their release": Mutant(
            "redis.call('UNLINK', KEYS[GIVEN_KEYS + i])",
            "redis.call('EXISTS', KEYS[GIVEN_KEYS + i])",
            contract.TestRelease().test_moves_on_once_and_deletes_the_counts,
        ),
    },
    "take_cuts": {
        "a cut counts records set aside under any key": Mutant(
            "elseif not window or mark == mark_of_window[window] then",
            "else",
            user_keys.test_records_set_aside_count_under_the_key_of_their_window,
        ),
        "cuts at other positions are a retry": Mutant(
            "redis.call('HGET', cut_calls, partition) == one.digest",
            "true",
            contract.TestCuts().test_retry_is_recognised_by_its_whole_content,
        ),
        "a late cut refuses what it should accept": Mutant(
            "if one.open_bin <= tonumber(one.expected) + 2 then",
            "if true then",
            ahead.test_a_late_cut_accepts_what_its_open_bin_allows,
        ),
        "what was set aside is decided again": Mutant(
            "redis.call('UNLINK', one.ahead, one.ahead_places)",
            "",
            ahead.test_a_record_set_aside_is_decided_once,
        ),
        "partitions share the cuts of the first one": Mutant(
            "{}, GIVEN_KEYS + KEYS_OF_ONE * (number - 1),",
            "{}, GIVEN_KEYS,",
            ahead.test_each_partition_gets_its_own_answer,
        ),
        "partitions share the answer of the first one": Mutant(
            "GIVEN_ARGUMENTS + ARGUMENTS_OF_ONE * (number - 1)",
            "GIVEN_ARGUMENTS",
            ahead.test_each_partition_gets_its_own_answer,
        ),
        "a call for several partitions decides without seeing what is set aside": Mutant(
            "if records ~= one.seen then return nil end",
            "",
            ahead.test_a_late_cut_of_records_set_aside_waits_for_a_call_of_its_own,
        ),
        "a late cut reads all that is set aside": Mutant(
            "local counted, future, before = {}, records, 0",
            "local counted, future, before, all = {}, records, 0, redis.call('HGETALL', one.ahead)",
            ahead.test_a_late_cut_looks_at_few_names_in_each_script,
        ),
        "a cut falls back": Mutant(
            "if one.positions[1] < tonumber(last_position)",
            "if false",
            contract.TestCuts().test_cut_below_the_position_or_the_last_cut_conflicts,
        ),
        "a cut after the last bin's is handed over": Mutant(
            "redis.call('HSETNX', state, 'over:'",
            "redis.call('HSET', state, 'over:'",
            stop.test_where_the_last_bin_is_cut_is_kept_for_the_next_segment,
        ),
        "a cut before the last bin's is handed over": Mutant(
            "bin >= tonumber(held[4]) - 1",
            "bin >= tonumber(held[4]) - 2",
            stop.test_where_the_last_bin_is_cut_is_kept_for_the_next_segment,
        ),
    },
    "note_user_keys": {
        "a new key is noted although its window has begun": Mutant(
            "table.concat(redis.call('ZRANGE', open_windows, 0, -1), ' ') ~= windows",
            "false",
            user_keys.test_a_window_that_counts_meanwhile_keeps_its_key,
        ),
        "a key is noted over another one": Mutant(
            "held ~= before or", "", user_keys.test_a_window_that_counts_meanwhile_keeps_its_key
        ),
    },
    "open_epoch": {
        "records outlive a jump over their bin": Mutant(
            "forget(untallied, shards_at, shards)", "", users_that_are_jumped_over_are_forgotten
        ),
        "what was seen of users outlives a jump over its window": Mutant(
            "forget(open_windows, bins_to_forget, windows)", "", users_that_are_jumped_over_are_forgotten
        ),
        "names of rows that nobody saw stay": Mutant(
            "      keep_found(number, last_visible)\n",
            "",
            found_keys.test_keys_of_rows_that_nobody_saw_are_forgotten,
        ),
        "an epoch forgets what earlier ones found": Mutant(
            "if listed ~= '' then",
            "if false then",
            found_keys.test_an_epoch_lists_the_keys_that_earlier_ones_found,
        ),
        "an epoch is opened over released bins": Mutant(
            "or tonumber(first_bin) <= tonumber(held[4])",
            "or false",
            contract.TestOpenEpoch().test_epoch_that_goes_back_conflicts,
        ),
        "rows that the witness does not know stay": Mutant(
            "redis.call('XRANGE', chain, from, last, 'COUNT', 1000)",
            "redis.call('XRANGE', chain, from, '+', 'COUNT', 1000)",
            contract.TestOpenEpoch().test_chain_that_went_on_elsewhere_discards_what_nobody_saw,
        ),
        "a counter is carried over to another chain": Mutant(
            "local counter = ''",
            "local counter = carried",
            contract.TestOpenEpoch().test_the_counter_is_carried_over_where_the_chain_goes_on_only,
        ),
        "no counter is carried over": Mutant(
            "    counter = carried\n",
            "",
            contract.TestOpenEpoch().test_the_counter_is_carried_over_where_the_chain_goes_on_only,
        ),
        "a stop outlives the next opening": Mutant(
            "redis.call('HDEL', state, 'stopped')", "", stop.test_a_stopped_stream_reads_on_and_counts_nothing
        ),
    },
    "forget_cells": {
        "counts of a running epoch are forgotten": Mutant(
            "if not finished and redis.call('HEXISTS', epochs, epoch .. ':end_reason') == 0 then",
            "if false then",
            found_keys.test_counts_of_keys_stay_until_the_epoch_ends,
        ),
    },
    "name_keys": {
        "keys have numbers under two keys of hashes": Mutant(
            "if noted and noted ~= mark then return 'user_key' end",
            "",
            found_keys.test_keys_of_another_strategy_or_key_or_of_a_sealed_window_have_none,
        ),
        "a key gets a new number": Mutant(
            "elseif not number then", "else", found_keys.test_a_key_has_one_number_in_a_window
        ),
        "a key that does not stay gets a cell": Mutant(
            "if not number and not has_cell(hash) then",
            "if false then",
            found_keys.test_keys_that_do_not_stay_are_deleted,
        ),
    },
    "thin_keys": {
        "names of keys that do not stay are kept": Mutant(
            "redis.call('HSET', held_keys, key, hash)", "", found_keys.test_keys_that_do_not_stay_are_deleted
        ),
        "keys are thinned by a worker that has not seen the last release": Mutant(
            "held[1] ~= epoch or held[2] ~= seq",
            "held[1] ~= epoch",
            found_keys.test_keys_that_do_not_stay_are_deleted,
        ),
    },
    "scan_ahead": {
        "a late cut looks at all that is set aside in one scan": Mutant(
            "'COUNT', ARGV[3]",
            "'COUNT', 10000000",
            ahead.test_a_late_cut_looks_at_few_names_in_each_script,
        ),
    },
    "forget_refused": {
        "a worker forgets refused records that another one reads": Mutant(
            "if not written[position] then",
            "if false then",
            ahead.test_refused_places_stay_until_their_letters_are_written,
        ),
    },
    "seal": {
        "a partition is left out of the seal": Mutant(
            "math.min(", "math.max(", contract.TestSeal().test_slowest_partition_decides
        ),
        "a partition that nobody started is ignored": Mutant(
            "if redis.call('HEXISTS', base_bins, ARGV[i]) == 0",
            "if false",
            contract.TestSeal().test_slowest_partition_decides,
        ),
        "bins are sealed beyond the stream's end": Mutant(
            "if held[3] and", "if false and", stop.test_no_bin_is_sealed_beyond_the_end
        ),
    },
    "publish": {
        "visible before released": Mutant(
            "visible < seq and seq <= released",
            "visible < seq",
            contract.TestReader().test_visible_never_goes_back_nor_beyond_released,
        ),
        "visible goes back": Mutant(
            "visible < seq and seq <= released",
            "seq <= released",
            contract.TestReader().test_visible_never_goes_back_nor_beyond_released,
        ),
    },
    "reserve": {
        "a ledger entry is overwritten": Mutant(
            "if known then",
            "if false then",
            contract.TestRest().test_ledger_keeps_entries_in_order_and_for_ever,
        ),
        "two streams take the last of a total": Mutant(
            "if ARGV[3] ~= ''",
            "if false",
            stop.test_an_entry_is_written_only_after_the_entries_that_were_seen,
        ),
    },
    "stop": {
        "what was counted outlives a stop": Mutant(
            "do redis.call('UNLINK', KEYS[i]) end",
            "do end",
            stop.test_a_stop_deletes_what_was_counted_for_later_bins,
        ),
        "counts of open nodes outlive a stop": Mutant(
            ", 'counter', ''", "", stop.test_a_stop_deletes_what_was_counted_for_later_bins
        ),
        "a running epoch is stopped": Mutant(
            "if redis.call('HEXISTS', epochs, epoch .. ':end_reason') == 0 then",
            "if false then",
            stop.test_a_running_epoch_is_not_stopped,
        ),
        "a stop ignores a release": Mutant(
            "or held[2] ~= expected_seq",
            "",
            stop.test_a_worker_that_has_not_seen_the_last_release_stops_nothing,
        ),
    },
    "end_at": {
        "a stream ends before a sealed bin": Mutant(
            "if not held[2] and tonumber(held[1]) >= tonumber(until_bin) then",
            "if false then",
            stop.test_an_end_never_moves_and_no_sealed_bin_is_beyond_it,
        ),
        "a stream's end moves": Mutant(
            "if held[2] and held[2] ~= until_bin then return 'conflict' end",
            "if held[2] ~= until_bin then held[2] = nil end",
            stop.test_an_end_never_moves_and_no_sealed_bin_is_beyond_it,
        ),
        "an end hands over a cut that is taken already": Mutant(
            "if tonumber(bin) >= tonumber(until_bin) - 1 then return end",
            "",
            stop.test_an_end_that_comes_after_the_last_cut_hands_nothing_over,
        ),
        "an end lowers a stream's format": Mutant(
            "if tonumber(redis.call('HGET', epochs, 'format') or '1') < tonumber(format) then",
            "if true then",
            stop.test_an_end_does_not_lower_the_format_of_a_stream,
        ),
    },
    "trim": {
        "an epoch leaves though no later row is visible": Mutant(
            "if tonumber(redis.call('GET', visible) or '0') <= tonumber(last_seq) then",
            "if false then",
            retention.test_what_a_worker_saw_before_others_changed_it_removes_no_last_row,
        ),
        "an epoch leaves before an older one": Mutant(
            "tonumber(number) < tonumber(epoch) then return 'conflict' end",
            "false then return 'conflict' end",
            retention.test_what_a_worker_saw_before_others_changed_it_removes_no_epoch_before_an_older_one,
        ),
        "rows of a removed epoch stay": Mutant(
            "redis.call('XTRIM', chain, 'MINID', string.format('%.0f-0', tonumber(last_seq) + 1))",
            "",
            retention.test_an_old_epoch_leaves_and_the_stream_goes_on,
        ),
        "values of a removed epoch stay": Mutant(
            "for i = GIVEN_KEYS + 1, #KEYS do redis.call('UNLINK', KEYS[i]) end",
            "",
            retention.test_no_tile_of_an_epoch_that_left_stays,
        ),
        "nothing says where the chain begins": Mutant(
            "if left ~= '' then redis.call('HSET', epochs, 'trimmed', left) end",
            "",
            retention.test_an_old_epoch_leaves_and_the_stream_goes_on,
        ),
        "a running epoch leaves": Mutant(
            "if redis.call('HEXISTS', epochs, epoch .. ':end_reason') == 0 then return 'conflict' end",
            "",
            retention.test_what_a_worker_saw_before_others_changed_it_removes_no_running_epoch,
        ),
    },
}


@pytest.fixture
async def redis_stores(servers: Servers) -> AsyncIterator[Stores]:
    async with over(servers["bundled"]) as stores:
        yield stores


@pytest.mark.parametrize(("name", "mutant"), [(name, one) for name in MUTANTS for one in MUTANTS[name]])
async def test_mutant_is_caught(
    name: str, mutant: str, redis_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong, caught_by = MUTANTS[name][mutant]
    text = script_text(name)
    assert text.count(right.encode()) == 1, "the script has changed: change the mutant with it"
    broken = Script(text.replace(right.encode(), wrong.encode()))
    for module in (redis_store, exact_counts, epochs, taking_cuts, key_notes):
        monkeypatch.setattr(module, "script", lambda asked: broken if asked == name else script(asked))
    with pytest.raises((AssertionError, OSError)):  # Redis itself may refuse what a broken script does
        await caught_by(redis_stores)
