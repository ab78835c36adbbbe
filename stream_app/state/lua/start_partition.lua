-- Create a partition's state at its first position, once.
-- KEYS: state, positions, starts, base_bins
-- ARGV: strategy hash, partition, position
local state, positions, starts, base_bins = unpack(KEYS)
local strategy_hash, partition, position = unpack(ARGV)
local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
local start = redis.call('HGET', starts, partition)
if start then return start == position and 'already' or 'conflict' end
redis.call('HSET', positions, partition, position)
redis.call('HSET', starts, partition, position)
-- Sealed bins are closed for the new partition too.
redis.call('HSET', base_bins, partition, held[2])
return 'done'
