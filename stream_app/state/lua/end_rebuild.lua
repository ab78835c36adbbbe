-- Show a stream that was put back, once all its rows are there. It then has no state, like a lost stream.
-- KEYS: state, chain, visible, strategy, epochs
-- ARGV: hash of a history, its last seq, the strategies' text, and the format that the stream then needs
local state, chain, visible, strategy, epochs = unpack(KEYS)
local history_hash, seq, text, format = unpack(ARGV)
if redis.call('HGET', state, 'strategy_hash') ~= history_hash then return 'conflict' end
local newest = redis.call('XREVRANGE', chain, '+', '-', 'COUNT', 1)[1]
if not newest or newest[1] ~= seq .. '-0' then return 'conflict' end
redis.call('SET', visible, seq)
redis.call('SET', strategy, text)
redis.call('HDEL', epochs, 'format')
if tonumber(format) > 1 then redis.call('HSET', epochs, 'format', format) end
redis.call('UNLINK', state)
return 'done'
