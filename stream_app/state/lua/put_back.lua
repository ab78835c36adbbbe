-- Put back rows from the witness that this store has lost, before the running epoch releases anything.
-- KEYS: state, epochs, chain, then the tiles
-- ARGV: strategy hash, seq of the last row that is here, epoch, its record, its last bin, its end reason, the keys
--       that it has found up to there (may be empty), number of rows, then seq and row in turns, then for each tile: its length before, bytes to append, whether it is then full
local state, epochs, chain = unpack(KEYS, 1, 3)
local strategy_hash, after_seq, epoch, record, last_bin, end_reason, found = unpack(ARGV, 1, 7)
local rows = tonumber(ARGV[8])
local GIVEN_KEYS, GIVEN_ARGUMENTS = 3, 8
local last_seq = ARGV[GIVEN_ARGUMENTS + 2 * rows - 1]

local held = redis.call('HMGET', state, 'strategy_hash', 'epoch', 'seq')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
local newest = redis.call('XREVRANGE', chain, '+', '-', 'COUNT', 1)[1]
local newest_seq = newest and string.match(newest[1], '^%d+') or '0'
if newest_seq == last_seq then return 'already' end
-- Only releases write rows of the running epoch; a stream that is history has none.
local is_running = held[1] ~= 'history' and tonumber(epoch) >= tonumber(held[2])
if newest_seq ~= after_seq or is_running or tonumber(last_seq) > tonumber(held[3]) then return 'conflict' end

local function tile(i)
  local argument = GIVEN_ARGUMENTS + 2 * rows + 3 * i - 2
  return KEYS[GIVEN_KEYS + i], tonumber(ARGV[argument]), ARGV[argument + 1], ARGV[argument + 2]
end
for i = 1, #KEYS - GIVEN_KEYS do
  local key, length = tile(i)
  if redis.call('STRLEN', key) ~= length then return 'conflict' end
end

for i = 1, rows do
  local argument = GIVEN_ARGUMENTS + 2 * i - 1
  redis.call('XADD', chain, ARGV[argument] .. '-0', 'row', ARGV[argument + 1])
end
for i = 1, #KEYS - GIVEN_KEYS do
  local key, _, data, fills = tile(i)
  redis.call('APPEND', key, data)
  if fills == '1' then redis.call('SET', key, redis.call('GET', key)) end
end
redis.call('HSETNX', epochs, epoch, record)
if found ~= '' then redis.call('HSET', epochs, epoch .. ':found', found) end
redis.call('HSET', epochs, epoch .. ':last_bin', last_bin, epoch .. ':end_reason', end_reason)
return 'done'
