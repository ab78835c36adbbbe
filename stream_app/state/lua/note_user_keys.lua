-- Note which key hashes the users of which cap windows, if no window has begun to count users meanwhile.
-- KEYS: state, epochs, open_windows
-- ARGV: what was noted before ('' for nothing), the open windows as the caller saw them, what is noted from now on, the
--       format that the stream needs
local state, epochs, open_windows = unpack(KEYS)
local before, windows, noted, format = unpack(ARGV)
if redis.call('EXISTS', state) == 0 then return 'conflict' end
local held = redis.call('HGET', state, 'user_keys') or ''
if held == noted then return 'already' end
if held ~= before or table.concat(redis.call('ZRANGE', open_windows, 0, -1), ' ') ~= windows then return 'conflict' end
if tonumber(redis.call('HGET', epochs, 'format') or '1') < tonumber(format) then
  redis.call('HSET', epochs, 'format', format)
end
redis.call('HSET', state, 'user_keys', noted)
return 'done'
