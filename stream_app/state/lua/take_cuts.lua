-- Append cuts to a partition; cuts that its position has reached move into its base bin. Decide about its records set
-- aside: all of them are below the first of these cuts and beyond all earlier cuts.
-- KEYS: state, positions, starts, base_bins, cuts of the partition, cut_calls, the partition's records set aside, the
--       places of some of them, places of refused records, operator_counts, open_bins, untallied, open_windows, then
--       for each target in which some of them count: its hash, and the users of its window (the same hash without users)
-- ARGV: strategy hash, partition, expected last cut bin, digest of this call, packed {bins, positions, overdue},
--       open bin of the first cut, how far ahead of it a record may be dated, how many records the caller saw set
--       aside, packed names of the records that are not dated further ahead, how many places of a user may count
--       (0: all), the announced change that the caller knows (may be empty), then the names of the targets: a bin, or a
--       shard of users
-- Replies: 'again' if more records are set aside than the caller saw
#include counts
#include waiting
#include merged
#include user_keys
local state, positions, starts, base_bins, cuts, cut_calls = unpack(KEYS, 1, 6)
local ahead, ahead_places, refused_ahead, operator_counts, open_bins, untallied, open_windows = unpack(KEYS, 7, 13)
local strategy_hash, partition, expected, digest = unpack(ARGV, 1, 4)
local bins, cut_positions, overdue = unpack(cmsgpack.unpack(ARGV[5]))
local open_bin, newest_bin = tonumber(ARGV[6]), tonumber(ARGV[6]) + tonumber(ARGV[7])
local seen, candidates = tonumber(ARGV[8]), cmsgpack.unpack(ARGV[9])
local most_places, change = tonumber(ARGV[10]), ARGV[11]
local GIVEN_KEYS, GIVEN_ARGUMENTS, MOST_PLACES = 13, 11, 1000

local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin', 'change', 'user_keys')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
-- The change says when bins close, and which records set aside count. A cut is also what a caller must know to count by
-- the settings after it, so only cuts need this check.
if (held[3] or '') ~= change then return 'strategy' end

local known = redis.call('HGET', positions, partition)
local base_bin = redis.call('HGET', base_bins, partition) or held[2]
local position = tonumber(known or '0')
local last_bin, last_position = base_bin, position
local tail = redis.call('LINDEX', cuts, -1)
if tail then
  last_bin, last_position = string.match(tail, '^(%S+) (%S+)')
end
if last_bin ~= expected then
  -- Equal bins are not enough: cuts at different positions would put records into different bins.
  return redis.call('HGET', cut_calls, partition) == digest and 'already' or 'conflict'
end
if cut_positions[1] < tonumber(last_position) then return 'conflict' end

local targets = {}
for i = GIVEN_ARGUMENTS + 1, #ARGV do
  local place = GIVEN_KEYS + 2 * (i - GIVEN_ARGUMENTS)
  targets[ARGV[i]] = {KEYS[place - 1], KEYS[place]}
end

local ahead_mark = redis.call('HGET', ahead, 'key mark')

-- Return the bin, the window or nil, the target's name, its field and the mark of the user's key, as a record that is set
-- aside is named (apply.lua): 'bin cell', or 'shard user-and-cell', and then the mark if it is not that of all others.
local function parsed(name)
  local target, bin, window, digits, mark = string.match(name, '^((%-?%d+):(%-?%d+):%d+) (%x+) ?(%x*)$')
  if target then return bin, window, target, bytes_of(digits), mark == '' and ahead_mark or bytes_of(mark) end
  local own_bin, cell = string.match(name, '^(%-?%d+) (%d+)$')
  return own_bin, nil, own_bin, cell
end

local mark_of_window = {}

-- Return the records set aside that count, as {bin, window, target, field, number}, and how many are refused for each
-- reason; nothing if more are set aside than the caller saw. It reads only records that may count, because there may be
-- any number of others.
local function decided()
  local records = tonumber(redis.call('HGET', ahead, 'records') or '0')
  -- A record is set aside because it is dated beyond everything that a cut at its instant would accept.
  if open_bin <= tonumber(expected) + 2 then return {}, records, 0 end
  if records ~= seen then return nil end
  local counted, future, before = {}, records, 0
  local numbers = get_counts(ahead, candidates, 1, #candidates)
  for _, name in ipairs(candidates) do
    local bin, window, target, field, mark = parsed(name)
    local number = numbers[name]
    if window and not mark_of_window[window] then
      mark_of_window[window] = user_key_of(targets[target][2], window, held[4]) or ahead_mark
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

local function open_window(window, target)
  redis.call('ZADD', open_windows, window, window)
  redis.call('HSETNX', targets[target][2], 'key mark', mark_of_window[window])
end

-- Count records by target. Of users' records only those that may count wait in a shard, because one script reads it all.
local function count(counted)
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
      local entries, more = entries_left(fields, numbers, most_places)
      append(untallied, records.bin, target, targets[target][1], table.concat(entries))
      open_window(records.window, target)
      over = over + more
    else
      for _, cell in ipairs(fields) do redis.call('HINCRBY', targets[target][1], cell, numbers[cell]) end
    end
  end
  if over > 0 then redis.call('HINCRBY', operator_counts, 'over_cap', over) end
end

local function refuse(future, before)
  if future > 0 then redis.call('HINCRBY', operator_counts, 'future', future) end
  if before > 0 then redis.call('HINCRBY', operator_counts, 'before_first_bin', before) end
  local room = MOST_PLACES - redis.call('LLEN', refused_ahead)
  for _, place in ipairs(redis.call('LRANGE', ahead_places, 0, -1)) do
    local bin, place_position = string.match(place, '^(%S+) (%S+)$')
    if tonumber(bin) > newest_bin and room > 0 then
      redis.call('RPUSH', refused_ahead, place_position)
      room = room - 1
    end
  end
end

local counted, future, before = decided()
if not counted then return 'again' end
local weight = tonumber(redis.call('HGET', ahead, 'weight') or '1') -- what one record adds to its cells together
count(counted)
refuse(future / weight, before / weight)
redis.call('UNLINK', ahead, ahead_places)

if not known then
  redis.call('HSET', positions, partition, '0')
  redis.call('HSET', starts, partition, '0')
end
for i, bin in ipairs(bins) do
  if cut_positions[i] <= position then
    base_bin = string.format('%.0f', bin)
  else
    redis.call('RPUSH', cuts, string.format('%.0f %.0f %.0f', bin, cut_positions[i], overdue[i]))
  end
end
redis.call('HSET', base_bins, partition, base_bin)
redis.call('HSET', cut_calls, partition, digest)
return 'done'
