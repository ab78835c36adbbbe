-- Show an imported stream once all its rows are there.
-- KEYS: state, chain, visible
-- ARGV: hash of a history, its last seq
local state, chain, visible = unpack(KEYS)
local history_hash, seq = unpack(ARGV)
if redis.call('HGET', state, 'strategy_hash') ~= history_hash then return 'conflict' end
local newest = redis.call('XREVRANGE', chain, '+', '-', 'COUNT', 1)[1]
if not newest or newest[1] ~= seq .. '-0' then return 'conflict' end
redis.call('SET', visible, seq)
return 'done'
