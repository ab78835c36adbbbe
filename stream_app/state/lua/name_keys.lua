-- Give each key that no list names a number, which is its cell less a constant. A key has one number in a window.
-- KEYS: state, the hash of the window's users and keys, open_windows
-- ARGV: strategy hash, window, mark of the key that hashes, then for each name: its hash, and the name encrypted
-- Replies: packed numbers (-1: the key has no cell, because the hidden keys have been halved), or a word: conflict, strategy, sealed (no epoch will count the window, and a key has no number),
-- user_key
#include user_keys
local state, held_keys, open_windows = unpack(KEYS)
local strategy_hash, window, mark = unpack(ARGV, 1, 3)
local GIVEN_ARGUMENTS = 3
local held = redis.call('HMGET', state, 'strategy_hash', 'released_bin', 'stopped', 'user_keys')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
local noted = user_key_of(held_keys, window, held[4])
if noted and noted ~= mark then return 'user_key' end
if held[3] or tonumber(window) <= tonumber(held[2]) then -- keys that have a number keep it
  for i = GIVEN_ARGUMENTS + 1, #ARGV, 2 do
    if redis.call('HEXISTS', held_keys, 'number:' .. ARGV[i]) == 0 then return 'sealed' end
  end
end

-- thin_keys.lua notes it.
local thinned = tonumber(redis.call('HGET', held_keys, 'thinned') or '0')
local function has_cell(hash) return thinned == 0 or struct.unpack('>I4', hash) < 2 ^ (32 - thinned) end

redis.call('HSETNX', held_keys, 'key mark', mark)
redis.call('ZADD', open_windows, window, window)
local numbers, next_number = {}, tonumber(redis.call('HGET', held_keys, 'keys') or '0')
for i = GIVEN_ARGUMENTS + 1, #ARGV, 2 do
  local hash, name = ARGV[i], ARGV[i + 1]
  local number = redis.call('HGET', held_keys, 'number:' .. hash)
  if not number and not has_cell(hash) then
    number = '-1'
  elseif not number then
    number = string.format('%.0f', next_number)
    next_number = next_number + 1
    redis.call('HSET', held_keys, 'number:' .. hash, number, 'key:' .. number, hash .. name)
  end
  numbers[#numbers + 1] = tonumber(number)
end
redis.call('HSET', held_keys, 'keys', string.format('%.0f', next_number))
return cmsgpack.pack(numbers)
