-- Give a stream its end: no bin from this one on is ever sealed (seal.lua).
-- KEYS: state, epochs
-- ARGV: the first bin that is not counted, the format that the stream needs
local state, epochs = unpack(KEYS)
local until_bin, format = unpack(ARGV)
local held = redis.call('HMGET', state, 'sealed_bin', 'until_bin')
if not held[1] then return 'conflict' end
if held[2] then return held[2] == until_bin and 'already' or 'conflict' end
if tonumber(held[1]) >= tonumber(until_bin) then return 'sealed' end
if tonumber(redis.call('HGET', epochs, 'format') or '1') < tonumber(format) then
  redis.call('HSET', epochs, 'format', format)
end
redis.call('HSET', state, 'until_bin', until_bin)
return 'done'
