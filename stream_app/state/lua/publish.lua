-- Make released rows visible: the visible seq only rises, and only to a released seq.
-- KEYS: state, visible
-- ARGV: seq
local released = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
local visible = tonumber(redis.call('GET', KEYS[2]) or '0')
local seq = tonumber(ARGV[1])
if visible < seq and seq <= released then redis.call('SET', KEYS[2], ARGV[1]) end
return 'done'
