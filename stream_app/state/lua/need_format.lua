-- Raise the store's format to what is stored from now on; it never falls, and only a build that knows it may raise it.
-- KEYS: format
-- ARGV: the needed format, the newest format that the caller knows
local held = tonumber(redis.call('GET', KEYS[1]) or '0')
if held > tonumber(ARGV[2]) then return 'conflict' end
if held >= tonumber(ARGV[1]) then return 'already' end
redis.call('SET', KEYS[1], ARGV[1])
return 'done'
