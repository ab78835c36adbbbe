-- Apply changes of a stream, one after the other. Each is decided by itself: it adds one slice's counts to the cells of open
-- bins and moves its partition's position, or does neither.
-- KEYS: state, positions, base_bins, open_bins, untallied, open_windows, operator_counts, then for each change: cuts of the
--       partition, the partition's records set aside, the places of some of them, then the cells of each bin in `bins` (with
--       a cap per user, in place of the cells: each shard of users, then the users of each window)
-- ARGV: strategy hash, epoch whose rules decided, then for each change: partition, expected position, new position, last cut bin (or the bin and the
--       position of a cut below which all records of the slice lie: later cuts then do not matter), due instant in us or '',
--       packed {names, deltas, places, weight of a record, windows, marks of the keys of their users} of records to set
--       aside or '', packed {names, numbers} to add to the operator's counts (then, for rows of an engine, the partition's
--       origins and the last bin that the rows close or 'None'),
--       packed {bins, number of cells of each bin, cells, deltas}, '' and ''; with a cap packed {bins, number of entries of
--       each shard}, the entries of the shards one after the other, packed {names of the shards, their bins, windows, marks
--       of the windows' keys of users, from how many entries on a shard is merged, how many places of a user may count (0:
--       all) or, if the next is above 0, how many keys; how many places of each key; whether places are keyed}
-- Replies: a word for each change, with a space after it
#include waiting
#include merged
#include user_keys
local state, positions, base_bins, open_bins, untallied, open_windows, operator_counts = unpack(KEYS, 1, 7)
local strategy_hash, epoch = unpack(ARGV, 1, 2)
local GIVEN_KEYS, KEYS_OF_ONE, GIVEN_ARGUMENTS, ARGUMENTS_OF_ONE, MOST_PLACES = 7, 3, 2, 10, 1000
local changes = (#ARGV - GIVEN_ARGUMENTS) / ARGUMENTS_OF_ONE

local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin', 'stopped', 'user_keys', 'epoch')
if not held[1] then return string.rep('conflict ', changes) end
if held[1] ~= strategy_hash then return string.rep('strategy ', changes) end
-- After a lost store an epoch refuses records that an earlier one may have measured: they would be measured twice.
if held[5] ~= epoch then return string.rep('conflict ', changes) end
local sealed_bin, is_stopped, noted_keys = tonumber(held[2]), held[3], held[4]

-- Return what the caller gave for a change. Its keys come after the first `before` ones.
local function given(number, before)
  local one, argument = {}, GIVEN_ARGUMENTS + ARGUMENTS_OF_ONE * (number - 1)
  one.cuts, one.ahead, one.ahead_places = unpack(KEYS, before + 1, before + KEYS_OF_ONE)
  one.before_targets = before + KEYS_OF_ONE
  one.partition, one.expected, one.new, one.last_cut_bin, one.due_us = unpack(ARGV, argument + 1, argument + 5)
  local aside, counts, cells, entries, shards = unpack(ARGV, argument + 6, argument + ARGUMENTS_OF_ONE)
  one.aside = aside ~= '' and cmsgpack.unpack(aside)
  one.counters, one.numbers, one.origins, one.closes = unpack(cmsgpack.unpack(counts))
  one.bins, one.sizes, one.cells, one.deltas = unpack(cmsgpack.unpack(cells))
  if shards ~= '' then
    one.entries = entries
    local packed = cmsgpack.unpack(shards)
    one.shards, one.shard_bins, one.windows, one.marks = unpack(packed, 1, 4)
    one.least_merged, one.most_places, one.of_key, one.keyed = unpack(packed, 5, 8)
  end
  one.last_key = one.before_targets + (one.shards and #one.shards + #one.windows or #one.bins)
  return one
end

-- The key of the users of a window.
local function users_key(one, i) return KEYS[one.before_targets + #one.shards + i] end

local function is_listed(cuts, cut)
  for _, listed in ipairs(redis.call('LRANGE', cuts, 0, -1)) do
    if string.match(listed, '^%S+ %S+') == cut then return true end
  end
  return false
end

local function cuts_are_known(one)
  if string.find(one.last_cut_bin, ' ') then return is_listed(one.cuts, one.last_cut_bin) end
  local tail = redis.call('LINDEX', one.cuts, -1)
  local last = tail and string.match(tail, '^(%S+)') or redis.call('HGET', base_bins, one.partition)
  if last ~= one.last_cut_bin then return false end
  if one.due_us ~= '' then
    local time = redis.call('TIME')
    if tonumber(time[1]) * 1000000 + tonumber(time[2]) >= tonumber(one.due_us) then return false end
  end
  return true
end

-- Return whether users have counted under the keys of this change, and note what the records set aside need of them.
local function same_user_keys(one)
  for i, window in ipairs(one.windows or {}) do
    local mark = user_key_of(users_key(one, i), window, noted_keys)
    one.marks[i] = bytes_of(one.marks[i])
    if mark and mark ~= one.marks[i] then return false end
  end
  if not one.aside then return true end
  -- The next cut compares these records' keys with those under which users have counted.
  local windows, marks = one.aside[5], one.aside[6]
  one.mark_of_window, one.ahead_mark = {}, redis.call('HGET', one.ahead, 'key mark')
  for i, window in ipairs(windows or {}) do
    local mark = noted_user_key(window, noted_keys) or one.ahead_mark
    local own = bytes_of(marks[i])
    if mark and mark ~= own then return false end
    one.mark_of_window[window], one.ahead_mark = own, one.ahead_mark or own
  end
  return true
end

local function add_all(one)
  local n, cells, deltas = 0, one.cells, one.deltas
  for i = 1, #one.bins do
    local counts = KEYS[one.before_targets + i]
    for _ = 1, one.sizes[i] do
      n = n + 1
      redis.call('HINCRBY', counts, cells[n], deltas[n])
    end
  end
end

-- A change merges at most one shard: all of them may have grown enough at the same time.
local function add_users(one)
  local last, is_merged, over = 0, false, 0
  set_keyed(one.keyed)
  for i, shard in ipairs(one.shards) do
    local records, first = KEYS[one.before_targets + i], last + 1
    last = last + one.sizes[i] * ENTRY
    local has = append(untallied, one.shard_bins[i], shard, records, string.sub(one.entries, first, last))
    if not is_merged then is_merged, over = merge(records, has, one.least_merged, one.most_places, one.of_key) end
  end
  if over > 0 then redis.call('HINCRBY', operator_counts, 'over_cap', over) end
  for i, window in ipairs(one.windows) do
    redis.call('HSETNX', users_key(one, i), 'key mark', one.marks[i])
    redis.call('ZADD', open_windows, window, window)
  end
end

-- A record's name, with the mark of its user's key if the others that are set aside have another one.
local function marked(one, name)
  local window = string.match(name, '^%-?%d+:(%-?%d+):')
  local mark = window and one.mark_of_window[tonumber(window)]
  return mark and mark ~= one.ahead_mark and name .. ' ' .. digits_of(mark) or name
end

-- The next cut decides about these records: it proves before which instant they arrived.
local function set_aside(one)
  local names, deltas, places, weight = unpack(one.aside, 1, 4)
  local records = 0
  for i, name in ipairs(names) do
    redis.call('HINCRBY', one.ahead, marked(one, name), deltas[i])
    records = records + deltas[i]
  end
  redis.call('HINCRBY', one.ahead, 'records', records)
  if (weight or 1) > 1 then redis.call('HSET', one.ahead, 'weight', weight) end
  if one.ahead_mark then redis.call('HSETNX', one.ahead, 'key mark', one.ahead_mark) end
  local room = MOST_PLACES - redis.call('LLEN', one.ahead_places)
  for i = 1, math.min(room, #places) do
    redis.call('RPUSH', one.ahead_places, string.format('%.0f %.0f', places[i][1], places[i][2]))
  end
end

-- Move the position. Cuts at or below it add nothing to the base bin.
local function move(one)
  redis.call('HSET', positions, one.partition, one.new)
  local base_bin = one.closes ~= 'None' and one.closes
  local first = redis.call('LINDEX', one.cuts, 0)
  while first do
    local bin, cut_position = string.match(first, '^(%S+) (%S+)')
    if tonumber(cut_position) > tonumber(one.new) then break end
    base_bin = bin
    redis.call('LPOP', one.cuts)
    first = redis.call('LINDEX', one.cuts, 0)
  end
  if base_bin then redis.call('HSET', base_bins, one.partition, base_bin) end
  if one.origins then redis.call('HSET', state, 'origins:' .. one.partition, one.origins) end
end

local function applied(one)
  local position = redis.call('HGET', positions, one.partition)
  if position ~= one.expected then
    -- All records before `new` are counted once already, by an earlier try or by another owner of the partition.
    return position == one.new and 'already ' or 'conflict '
  end
  if not cuts_are_known(one) then return 'cuts_changed ' end
  for _, bin in ipairs(one.bins) do
    if bin <= sealed_bin then return 'sealed ' end
  end
  if is_stopped and (#one.bins > 0 or one.aside) then return 'sealed ' end  -- no epoch will count these records
  if not same_user_keys(one) then return 'user_key ' end
  if one.shards then add_users(one) else add_all(one) end
  if one.aside then set_aside(one) end
  for i, counter in ipairs(one.counters) do redis.call('HINCRBY', operator_counts, counter, one.numbers[i]) end
  for _, bin in ipairs(one.bins) do redis.call('ZADD', open_bins, bin, bin) end
  move(one)
  return 'done '
end

local replies, last_key = {}, GIVEN_KEYS
for number = 1, changes do
  local one = given(number, last_key)
  replies[number], last_key = applied(one), one.last_key
end
return table.concat(replies)
