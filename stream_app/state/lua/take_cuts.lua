-- Append cuts to partitions; cuts that a partition's position has reached move into its base bin. Decide about its records
-- set aside: all of them are below the first of these cuts and beyond all earlier cuts. Each partition is decided by itself.
-- KEYS: state, positions, starts, base_bins, cut_calls, operator_counts, open_bins, untallied, open_windows, then for each
--       partition: its cuts, its records set aside, the places of some of them, places of refused records; then for each
--       target in which some of them count: its hash, and the users of its window (the same hash without users)
-- ARGV: strategy hash, how many places of a user may count, how many of a key, whether places are keyed (apply.lua), the number of partitions, then for each partition: its name, its expected last cut bin, digest of its part of
--       the call, packed {bins, positions, overdue}, open bin of the first cut, how far ahead of it a record may be dated,
--       how many records the caller saw set aside, packed names of the records that are not dated further ahead; then the
--       names of the targets: a bin, or a shard of users
-- Replies: a word for each partition, with a space after it; 'set_aside' if more records are set aside there than the caller
--       saw, and some of them may count
#include counts
#include waiting
#include merged
#include user_keys
local state, positions, starts, base_bins, cut_calls = unpack(KEYS, 1, 5)
local operator_counts, open_bins, untallied, open_windows = unpack(KEYS, 6, 9)
local strategy_hash, most_places, of_key, partitions = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local GIVEN_KEYS, KEYS_OF_ONE, GIVEN_ARGUMENTS, ARGUMENTS_OF_ONE, MOST_PLACES = 9, 4, 5, 8, 1000
set_keyed(ARGV[4] == '1')

local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin', 'user_keys', 'until_bin', 'hands_over')
if not held[1] then return string.rep('conflict ', partitions) end
if held[1] ~= strategy_hash then return string.rep('strategy ', partitions) end

local targets = {}
local target_keys, target_names = GIVEN_KEYS + KEYS_OF_ONE * partitions, GIVEN_ARGUMENTS + ARGUMENTS_OF_ONE * partitions
for i = 1, #ARGV - target_names do
  targets[ARGV[target_names + i]] = {KEYS[target_keys + 2 * i - 1], KEYS[target_keys + 2 * i]}
end

-- Return what the caller gave for a partition, and what is set aside there.
local function given(number)
  local one, key, argument = {}, GIVEN_KEYS + KEYS_OF_ONE * (number - 1), GIVEN_ARGUMENTS + ARGUMENTS_OF_ONE * (number - 1)
  one.cuts, one.ahead, one.ahead_places, one.refused_ahead = unpack(KEYS, key + 1, key + 4)
  one.partition, one.expected, one.digest = unpack(ARGV, argument + 1, argument + 3)
  one.bins, one.positions, one.overdue = unpack(cmsgpack.unpack(ARGV[argument + 4]))
  one.open_bin = tonumber(ARGV[argument + 5])
  one.newest_bin = one.open_bin + tonumber(ARGV[argument + 6])
  one.seen, one.candidates = tonumber(ARGV[argument + 7]), cmsgpack.unpack(ARGV[argument + 8])
  local aside = redis.call('HMGET', one.ahead, 'records', 'weight', 'key mark')
  one.records, one.weight = tonumber(aside[1] or '0'), tonumber(aside[2] or '1') -- weight: what one record adds to its cells
  one.ahead_mark = aside[3]
  one.mark_of_window = {}
  return one
end

-- Return the bin, the window or nil, the target's name, its field and the mark of the user's key, as a record that is set
-- aside is named (apply.lua): 'bin cell', or 'shard user-and-cell', and then the mark if it is not that of all others.
local function parsed(name, ahead_mark)
  local target, bin, window, digits, mark = string.match(name, '^((%-?%d+):(%-?%d+):%d+) (%x+) ?(%x*)$')
  if target then return bin, window, target, bytes_of(digits), mark == '' and ahead_mark or bytes_of(mark) end
  local own_bin, cell = string.match(name, '^(%-?%d+) (%d+)$')
  return own_bin, nil, own_bin, cell
end

-- Return the records set aside that count, as {bin, window, target, field, number}, and how many are refused for each
-- reason; nothing if more are set aside than the caller saw. It reads only records that may count, because there may be
-- any number of others.
local function decided(one)
  local records, mark_of_window = one.records, one.mark_of_window
  -- A record is set aside because it is dated beyond everything that a cut at its instant would accept.
  if one.open_bin <= tonumber(one.expected) + 2 then return {}, records, 0 end
  if records ~= one.seen then return nil end
  local counted, future, before = {}, records, 0
  local numbers = get_counts(one.ahead, one.candidates, 1, #one.candidates)
  for _, name in ipairs(one.candidates) do
    local bin, window, target, field, mark = parsed(name, one.ahead_mark)
    local number = numbers[name]
    if window and not mark_of_window[window] then
      mark_of_window[window] = user_key_of(targets[target][2], window, held[3]) or one.ahead_mark
    end
    if tonumber(bin) <= tonumber(held[2]) then
      before = before + number
      future = future - number
    elseif not window or mark == mark_of_window[window] then -- otherwise its user may have counted under another key
      counted[#counted + 1] = {bin, window, target, field, number}
      future = future - number
    end
  end
  return counted, future, before
end

-- Count records by target. Of users' records only those that may count wait in a shard, because one script reads it all.
local function count(counted, mark_of_window)
  local known, opened, over = {}, {}, 0
  for _, one in ipairs(counted) do
    local bin, window, target, field, number = unpack(one, 1, 5)
    local records = known[target]
    if not records then
      records = {bin = bin, window = window, target = target, fields = {}, numbers = {}}
      known[target], opened[#opened + 1] = records, records
    end
    table.insert(records.fields, field)
    records.numbers[field] = number
  end
  for _, records in ipairs(opened) do
    local target, fields, numbers = records.target, records.fields, records.numbers
    redis.call('ZADD', open_bins, records.bin, records.bin)
    if records.window then
      local entries, more = entries_left(fields, numbers, most_places, of_key)
      append(untallied, records.bin, target, targets[target][1], table.concat(entries))
      redis.call('ZADD', open_windows, records.window, records.window)
      redis.call('HSETNX', targets[target][2], 'key mark', mark_of_window[records.window])
      over = over + more
    else
      for _, cell in ipairs(fields) do redis.call('HINCRBY', targets[target][1], cell, numbers[cell]) end
    end
  end
  if over > 0 then redis.call('HINCRBY', operator_counts, 'over_cap', over) end
end

local function refuse(one, future, before)
  if future > 0 then redis.call('HINCRBY', operator_counts, 'future', future) end
  if before > 0 then redis.call('HINCRBY', operator_counts, 'before_first_bin', before) end
  local room = MOST_PLACES - redis.call('LLEN', one.refused_ahead)
  for _, place in ipairs(redis.call('LRANGE', one.ahead_places, 0, -1)) do
    local bin, place_position = string.match(place, '^(%S+) (%S+)$')
    if tonumber(bin) > one.newest_bin and room > 0 then
      redis.call('RPUSH', one.refused_ahead, place_position)
      room = room - 1
    end
  end
end

-- Take the cuts of one partition, and return the answer.
local function taken(one)
  local partition, cuts = one.partition, one.cuts
  local known = redis.call('HGET', positions, partition)
  local base_bin = redis.call('HGET', base_bins, partition) or held[2]
  local position = tonumber(known or '0')
  local last_bin, last_position = base_bin, position
  local tail = redis.call('LINDEX', cuts, -1)
  if tail then
    last_bin, last_position = string.match(tail, '^(%S+) (%S+)')
  end
  if last_bin ~= one.expected then
    -- Equal bins are not enough: cuts at different positions would put records into different bins.
    return redis.call('HGET', cut_calls, partition) == one.digest and 'already' or 'conflict'
  end
  if one.positions[1] < tonumber(last_position) then return 'conflict' end

  if one.records > 0 then
    local counted, future, before = decided(one)
    if not counted then return 'set_aside' end
    count(counted, one.mark_of_window)
    refuse(one, future / one.weight, before / one.weight)
    redis.call('UNLINK', one.ahead, one.ahead_places)
  end

  if not known then
    redis.call('HSET', positions, partition, '0')
    redis.call('HSET', starts, partition, '0')
  end
  for i, bin in ipairs(one.bins) do
    -- The next segment counts records of this one that are read after its last bin's cut.
    if held[5] and bin >= tonumber(held[4]) - 1 then
      redis.call('HSETNX', state, 'over:' .. partition, string.format('%.0f', one.positions[i]))
    end
    if one.positions[i] <= position then
      base_bin = string.format('%.0f', bin)
    else
      redis.call('RPUSH', cuts, string.format('%.0f %.0f %.0f', bin, one.positions[i], one.overdue[i]))
    end
  end
  redis.call('HSET', base_bins, partition, base_bin)
  redis.call('HSET', cut_calls, partition, one.digest)
  return 'done'
end

local answers = {}
for number = 1, partitions do answers[number] = taken(given(number)) .. ' ' end
return table.concat(answers)
