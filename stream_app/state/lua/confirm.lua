-- Write what is there already, so that the caller can wait until its replicas have this write, and all earlier ones.
-- KEYS: state
-- Replies: done, conflict (the stream is unknown)
local hash = redis.call('HGET', KEYS[1], 'strategy_hash')
if not hash then return 'conflict' end
redis.call('HSET', KEYS[1], 'strategy_hash', hash)
return 'done'
