-- Write a ledger entry once: a reserved entry never changes, even if the epoch is never opened.
-- KEYS: ledger
-- ARGV: place (stream:epoch), entry, number of entries that the caller saw or '': then nobody may have reserved since
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then
  if string.match(known, '^%d+ (.*)$') ~= ARGV[2] then return 'conflict' end
  redis.call('HSET', KEYS[1], ARGV[1], known)  -- the caller may wait until its replicas have the entry
  return 'already'
end
if ARGV[3] ~= '' and redis.call('HLEN', KEYS[1]) ~= tonumber(ARGV[3]) then return 'conflict' end
-- The number keeps the order of reservation.
redis.call('HSET', KEYS[1], ARGV[1], redis.call('HLEN', KEYS[1]) .. ' ' .. ARGV[2])
return 'done'
