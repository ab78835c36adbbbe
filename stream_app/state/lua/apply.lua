-- Add one slice's counts to the cells of open bins and move the partition's position: both or neither.
-- KEYS: state, positions, base_bins, cuts of the partition, open_bins, untallied, open_windows, the partition's records
--       set aside, the places of some of them, operator_counts, then the cells of each bin in `bins` (with a cap per
--       user, in place of the cells: each shard of users, then the users of each window)
-- ARGV: strategy hash, partition, expected position, new position, last cut bin (or the bin and the position of a cut
--       below which all records of the slice lie: later cuts then do not matter), due instant in us or '',
--       packed {names, deltas, places, weight of a record, windows, marks of the keys of their users} of records to set
--       aside or '', packed {names, numbers} to add to the operator's counts,
--       packed {bins, number of cells of each bin, cells, deltas}; with a cap packed {bins, number of entries of each
--       shard}, the entries of the shards one after the other, packed {names of the shards, their bins, windows, marks of
--       the windows' keys of users}, from how many entries on a shard is merged, and how many places of a user may count
--       (0: all)
#include waiting
#include merged
#include user_keys
local state, positions, base_bins, cuts, open_bins, untallied, open_windows = unpack(KEYS, 1, 7)
local ahead, ahead_places, operator_counts = unpack(KEYS, 8, 10)
local strategy_hash, partition, expected, new, last_cut_bin, due_us = unpack(ARGV, 1, 6)
local bins, sizes, cells, deltas = unpack(cmsgpack.unpack(ARGV[9]))
local entries, least_merged, most_places = ARGV[10], tonumber(ARGV[12]), tonumber(ARGV[13])
local shards, shard_bins, windows, marks = unpack(entries and cmsgpack.unpack(ARGV[11]) or {})
local aside = ARGV[7] ~= '' and cmsgpack.unpack(ARGV[7]) or {}
local names, name_deltas, places, weight, name_windows, name_marks = unpack(aside, 1, 6)
local counters, numbers = unpack(cmsgpack.unpack(ARGV[8]))
local GIVEN_KEYS, MOST_PLACES = 10, 1000

local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin', 'stopped', 'user_keys')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end

local position = redis.call('HGET', positions, partition)
if position ~= expected then
  -- All records before `new` are counted once already, by an earlier try or by another owner of the partition.
  return position == new and 'already' or 'conflict'
end

local function is_listed(cut)
  for _, listed in ipairs(redis.call('LRANGE', cuts, 0, -1)) do
    if string.match(listed, '^%S+ %S+') == cut then return true end
  end
  return false
end

local function cuts_are_known()
  if string.find(last_cut_bin, ' ') then return is_listed(last_cut_bin) end
  local tail = redis.call('LINDEX', cuts, -1)
  local last = tail and string.match(tail, '^(%S+)') or redis.call('HGET', base_bins, partition)
  if last ~= last_cut_bin then return false end
  if due_us ~= '' then
    local time = redis.call('TIME')
    if tonumber(time[1]) * 1000000 + tonumber(time[2]) >= tonumber(due_us) then return false end
  end
  return true
end

if not cuts_are_known() then return 'cuts_changed' end

local sealed_bin = tonumber(held[2])
for _, bin in ipairs(bins) do
  if bin <= sealed_bin then return 'sealed' end
end
if held[3] and (#bins > 0 or names) then return 'sealed' end  -- no epoch will count these records

for i, window in ipairs(windows or {}) do
  local mark = user_key_of(KEYS[GIVEN_KEYS + #shards + i], window, held[4])
  marks[i] = bytes_of(marks[i])
  if mark and mark ~= marks[i] then return 'user_key' end
end
-- The next cut compares these records' keys with those under which users have counted.
local mark_of_window, ahead_mark = {}, redis.call('HGET', ahead, 'key mark')
for i, window in ipairs(name_windows or {}) do
  local mark = noted_user_key(window, held[4]) or ahead_mark
  local given = bytes_of(name_marks[i])
  if mark and mark ~= given then return 'user_key' end
  mark_of_window[window], ahead_mark = given, ahead_mark or given
end

local function add_all()
  local n = 0
  for i = 1, #bins do
    local counts = KEYS[GIVEN_KEYS + i]
    for _ = 1, sizes[i] do
      n = n + 1
      redis.call('HINCRBY', counts, cells[n], deltas[n])
    end
  end
end

-- One call merges at most one shard: all of them may have grown enough at the same time.
local function add_users()
  local last, is_merged, over = 0, false, 0
  for i, shard in ipairs(shards) do
    local records, first = KEYS[GIVEN_KEYS + i], last + 1
    last = last + sizes[i] * ENTRY
    local has = append(untallied, shard_bins[i], shard, records, string.sub(entries, first, last))
    if not is_merged then is_merged, over = merge(records, has, least_merged, most_places) end
  end
  if over > 0 then redis.call('HINCRBY', operator_counts, 'over_cap', over) end
  for i, window in ipairs(windows) do
    redis.call('HSETNX', KEYS[GIVEN_KEYS + #shards + i], 'key mark', marks[i])
    redis.call('ZADD', open_windows, window, window)
  end
end

-- A record's name, with the mark of its user's key if the others that are set aside have another one.
local function marked(name)
  local window = string.match(name, '^%-?%d+:(%-?%d+):')
  local mark = window and mark_of_window[tonumber(window)]
  return mark and mark ~= ahead_mark and name .. ' ' .. digits_of(mark) or name
end

-- The next cut decides about these records: it proves before which instant they arrived.
local function set_aside()
  local records = 0
  for i, name in ipairs(names) do
    redis.call('HINCRBY', ahead, marked(name), name_deltas[i])
    records = records + name_deltas[i]
  end
  redis.call('HINCRBY', ahead, 'records', records)
  if (weight or 1) > 1 then redis.call('HSET', ahead, 'weight', weight) end
  if ahead_mark then redis.call('HSETNX', ahead, 'key mark', ahead_mark) end
  local room = MOST_PLACES - redis.call('LLEN', ahead_places)
  for i = 1, math.min(room, #places) do
    redis.call('RPUSH', ahead_places, string.format('%.0f %.0f', places[i][1], places[i][2]))
  end
end

if shards then add_users() else add_all() end
if names then set_aside() end
for i, counter in ipairs(counters) do redis.call('HINCRBY', operator_counts, counter, numbers[i]) end
for _, bin in ipairs(bins) do redis.call('ZADD', open_bins, bin, bin) end
redis.call('HSET', positions, partition, new)

-- Cuts at or below the position add nothing to the base bin.
local base_bin
local first = redis.call('LINDEX', cuts, 0)
while first do
  local bin, cut_position = string.match(first, '^(%S+) (%S+)')
  if tonumber(cut_position) > tonumber(new) then break end
  base_bin = bin
  redis.call('LPOP', cuts)
  first = redis.call('LINDEX', cuts, 0)
end
if base_bin then redis.call('HSET', base_bins, partition, base_bin) end
return 'done'
