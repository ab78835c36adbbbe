-- Store a page of noise once, and note the shared key that encrypts the stream's noise.
-- KEYS: noise
-- ARGV: field of the page, the page, the mark of its key (empty: workers do not share it)
-- Replies: done, conflict (another key is noted by now, nothing is stored)
local noise = KEYS[1]
local field, page, mark = unpack(ARGV)
local noted = redis.call('HGET', noise, 'key')
if mark == '' then
  redis.call('HDEL', noise, 'key')
elseif noted and noted ~= mark then
  return 'conflict'
else
  redis.call('HSET', noise, 'key', mark)
end
redis.call('HSETNX', noise, field, page)
return 'done'
