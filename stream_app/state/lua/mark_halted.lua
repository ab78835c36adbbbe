-- Mark an open stream as halted by a fault, or take the mark away. Readers see the mark.
-- KEYS: state, epochs
-- ARGV: '1' to mark it, '0' to take the mark away; the strategy hash of streams that nobody counts any more
local state, epochs = unpack(KEYS)
local hash = redis.call('HGET', state, 'strategy_hash')
if not hash or hash == ARGV[2] then return 'conflict' end
if ARGV[1] == '1' then
  return redis.call('HSET', epochs, 'halted', '1') == 1 and 'done' or 'already'
end
return redis.call('HDEL', epochs, 'halted') == 1 and 'done' or 'already'
