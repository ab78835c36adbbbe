-- Append cuts to a partition; those that its position has reached become its base bin.
-- KEYS: state, positions, starts, base_bins, cuts of the partition, cut_calls
-- ARGV: strategy hash, partition, expected last cut bin, digest of this call, packed {bins, positions}
local state, positions, starts, base_bins, cuts, cut_calls = unpack(KEYS)
local strategy_hash, partition, expected, digest = unpack(ARGV, 1, 4)
local bins, cut_positions = unpack(cmsgpack.unpack(ARGV[5]))

local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end

local known = redis.call('HGET', positions, partition)
local base_bin = redis.call('HGET', base_bins, partition) or held[2]
local position = tonumber(known or '0')
local last_bin, last_position = base_bin, position
local tail = redis.call('LINDEX', cuts, -1)
if tail then
  last_bin, last_position = string.match(tail, '^(%S+) (%S+)$')
end
if last_bin ~= expected then
  -- Equal bins are not enough: cuts at other positions would put records into other bins.
  return redis.call('HGET', cut_calls, partition) == digest and 'already' or 'conflict'
end
if cut_positions[1] < tonumber(last_position) then return 'conflict' end

if not known then
  redis.call('HSET', positions, partition, '0')
  redis.call('HSET', starts, partition, '0')
end
for i, bin in ipairs(bins) do
  if cut_positions[i] <= position then
    base_bin = string.format('%.0f', bin)
  else
    redis.call('RPUSH', cuts, string.format('%.0f %.0f', bin, cut_positions[i]))
  end
end
redis.call('HSET', base_bins, partition, base_bin)
redis.call('HSET', cut_calls, partition, digest)
return 'done'
