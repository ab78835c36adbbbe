-- Add one slice's counts to the cells of open bins and move the partition's position: both or neither.
-- KEYS: state, positions, base_bins, cuts of the partition, open_bins, operator_counts, open_windows, then the cells
--       of each bin in `bins`, then the users of each window
-- ARGV: strategy hash, partition, expected position, new position, last cut bin, due instant in us or '',
--       packed {bins, number of cells of each bin, cells, deltas}; under a cap of a user's events instead
--       {bins, place in `bins` of each record, cells}, the ids of users one after the other, and
--       packed {cap, bytes of an id, place of each record's window, windows}, and the mark of the ids' key
local state, positions, base_bins, cuts, open_bins, operator_counts, open_windows = unpack(KEYS, 1, 7)
local strategy_hash, partition, expected, new, last_cut_bin, due_us = unpack(ARGV, 1, 6)
local bins, sizes, cells, deltas = unpack(cmsgpack.unpack(ARGV[7]))
local GIVEN_KEYS = 7

local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end

local position = redis.call('HGET', positions, partition)
if position ~= expected then
  -- All records before `new` are counted once, whoever did it: a retry, or another owner of the partition.
  return position == new and 'already' or 'conflict'
end

local tail = redis.call('LINDEX', cuts, -1)
local last = tail and string.match(tail, '^(%S+)') or redis.call('HGET', base_bins, partition)
if last ~= last_cut_bin then return 'cuts_changed' end
if due_us ~= '' then
  local time = redis.call('TIME')
  if tonumber(time[1]) * 1000000 + tonumber(time[2]) >= tonumber(due_us) then return 'cuts_changed' end
end

local sealed_bin = tonumber(held[2])
for _, bin in ipairs(bins) do
  if bin <= sealed_bin then return 'sealed' end
end

if ARGV[8] then
  for i = GIVEN_KEYS + #bins + 1, #KEYS do
    local mark = redis.call('HGET', KEYS[i], 'key mark')
    if mark and mark ~= ARGV[10] then return 'user_key' end
  end
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

-- Records in order of position: of each user the first ones of a window count.
local function add_capped(bin_places)
  local ids, cap, id_bytes, window_places, windows = ARGV[8], unpack(cmsgpack.unpack(ARGV[9]))
  local over = 0
  for n, window in ipairs(window_places) do
    local user = string.sub(ids, (n - 1) * id_bytes + 1, n * id_bytes)
    if redis.call('HINCRBY', KEYS[GIVEN_KEYS + #bins + window], user, 1) <= cap then
      redis.call('HINCRBY', KEYS[GIVEN_KEYS + bin_places[n]], cells[n], 1)
    else
      over = over + 1
    end
  end
  for i, window in ipairs(windows) do
    redis.call('HSET', KEYS[GIVEN_KEYS + #bins + i], 'key mark', ARGV[10])
    redis.call('ZADD', open_windows, window, window)
  end
  if over > 0 then redis.call('HINCRBY', operator_counts, 'over_cap', over) end
end

if ARGV[8] then add_capped(sizes) else add_all() end
for _, bin in ipairs(bins) do redis.call('ZADD', open_bins, bin, bin) end
redis.call('HSET', positions, partition, new)

-- Cuts at or below the position say nothing more than the base bin does.
local base_bin
local first = redis.call('LINDEX', cuts, 0)
while first do
  local bin, cut_position = string.match(first, '^(%S+) (%S+)$')
  if tonumber(cut_position) > tonumber(new) then break end
  base_bin = bin
  redis.call('LPOP', cuts)
  first = redis.call('LINDEX', cuts, 0)
end
if base_bin then redis.call('HSET', base_bins, partition, base_bin) end
return 'done'
