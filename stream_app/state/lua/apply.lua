-- Add one slice's counts to the cells of open bins and move the partition's position: both or neither.
-- KEYS: state, positions, base_bins, cuts of the partition, open_bins, then the cells of each bin in `bins`
-- ARGV: strategy hash, partition, expected position, new position, last cut bin, due instant in us or '',
--       packed {bins, number of cells of each bin, cells, deltas}
local state, positions, base_bins, cuts, open_bins = unpack(KEYS, 1, 5)
local strategy_hash, partition, expected, new, last_cut_bin, due_us = unpack(ARGV, 1, 6)
local bins, sizes, cells, deltas = unpack(cmsgpack.unpack(ARGV[7]))
local GIVEN_KEYS = 5

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

local n = 0
for i, bin in ipairs(bins) do
  local counts = KEYS[GIVEN_KEYS + i]
  for _ = 1, sizes[i] do
    n = n + 1
    redis.call('HINCRBY', counts, cells[n], deltas[n])
  end
  redis.call('ZADD', open_bins, bin, bin)
end
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
