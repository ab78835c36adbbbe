-- Replace a stored page of noise by the same page under another key, unless it has changed or is gone.
-- KEYS: noise
-- ARGV: field of the page, the page as it was read, the page under the other key
local noise = KEYS[1]
local field, before, after = unpack(ARGV)
if redis.call('HGET', noise, field) ~= before then return 'conflict' end
redis.call('HSET', noise, field, after)
return 'done'
