-- Give each key that no list names a number, which is its cell less a constant. A key has one number in a window.
-- KEYS: state, the hash of the window's users and keys, open_windows
-- ARGV: strategy hash, window, mark of the key that hashes, then for each name: its hash, and the name encrypted
-- Replies: packed numbers, or a word: conflict, strategy, sealed (no epoch will count the window), user_key
#include user_keys
local state, held_keys, open_windows = unpack(KEYS)
local strategy_hash, window, mark = unpack(ARGV, 1, 3)
local GIVEN_ARGUMENTS = 3
local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin', 'stopped', 'user_keys')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
if held[3] or tonumber(window) <= tonumber(held[2]) then return 'sealed' end
local noted = user_key_of(held_keys, window, held[4])
if noted and noted ~= mark then return 'user_key' end

redis.call('HSETNX', held_keys, 'key mark', mark)
redis.call('ZADD', open_windows, window, window)
local numbers, next_number = {}, tonumber(redis.call('HGET', held_keys, 'keys') or '0')
for i = GIVEN_ARGUMENTS + 1, #ARGV, 2 do
  local hash, name = ARGV[i], ARGV[i + 1]
  local number = redis.call('HGET', held_keys, 'number:' .. hash)
  if not number then
    number = string.format('%.0f', next_number)
    next_number = next_number + 1
    redis.call('HSET', held_keys, 'number:' .. hash, number, 'key:' .. number, hash .. name)
  end
  numbers[#numbers + 1] = tonumber(number)
end
redis.call('HSET', held_keys, 'keys', string.format('%.0f', next_number))
return cmsgpack.pack(numbers)
