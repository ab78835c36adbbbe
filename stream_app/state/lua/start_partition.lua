-- Create a partition's state at its first position, once.
-- KEYS: state, positions, starts, base_bins
-- ARGV: strategy hash, partition, position, 'position bin' from which on late records of the segment before count (may be
--       empty)
local state, positions, starts, base_bins = unpack(KEYS)
local strategy_hash, partition, position, takes_over = unpack(ARGV)
local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin', 'until_bin', 'hands_over')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
local start = redis.call('HGET', starts, partition)
if start then return start == position and 'already' or 'conflict' end
redis.call('HSET', positions, partition, position)
redis.call('HSET', starts, partition, position)
-- Sealed bins are closed for the new partition too.
redis.call('HSET', base_bins, partition, held[2])
if takes_over ~= '' then redis.call('HSET', state, 'from:' .. partition, takes_over) end
-- After the last bin the next segment counts all of it.
if held[4] and tonumber(held[2]) >= tonumber(held[3]) - 1 then redis.call('HSETNX', state, 'over:' .. partition, position) end
return 'done'
