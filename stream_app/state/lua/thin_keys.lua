-- Note how often the hidden keys of a window have been halved; delete the names and the released counts of keys that do
-- not stay. Their hashes stay: records that wait to be tallied have their numbers.
-- KEYS: state, the hash of the window's users and keys, then the cells of each released bin
-- ARGV: epoch, seq that the caller saw, how often, number of cells, these cells, numbers of the keys
local state, held_keys = unpack(KEYS, 1, 2)
local epoch, seq, thinned, cells = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local GIVEN_KEYS, GIVEN_ARGUMENTS, ID_BYTES = 2, 4, 16
local held = redis.call('HMGET', state, 'epoch', 'seq')
if held[1] ~= epoch or held[2] ~= seq then return 'conflict' end
redis.call('HSET', held_keys, 'thinned', thinned)
if cells > 0 then
  for i = GIVEN_KEYS + 1, #KEYS do
    redis.call('HDEL', KEYS[i], unpack(ARGV, GIVEN_ARGUMENTS + 1, GIVEN_ARGUMENTS + cells))
  end
end
for i = GIVEN_ARGUMENTS + cells + 1, #ARGV do
  local key = 'key:' .. ARGV[i]
  local hash = string.sub(redis.call('HGET', held_keys, key) or '', 1, ID_BYTES)
  if hash ~= '' then
    redis.call('HSET', held_keys, key, hash)
    redis.call('HDEL', held_keys, 'number:' .. hash)
  end
end
return 'done'
