-- Return the time, and the mark: the latest time noted, which survives restarts and clock steps.
-- KEYS: mark
-- ARGV: the latest time that may be noted (a mark from a wrong clock would delay every closing until it is reached)
-- Replies: both in microseconds since 1970, as text (Lua numbers would be cut to 32 bits by some clients)
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local mark_us = tonumber(redis.call('GET', KEYS[1]) or '0')
-- The mark costs an fsync, so it follows the time by up to a second.
if now_us >= mark_us + 1000000 and now_us <= tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], string.format('%.0f', now_us))
end
return string.format('%.0f %.0f', now_us, mark_us)
