-- Delete the exact counts of an epoch that releases nothing more. They were kept because a key's past joins when it is found.
-- KEYS: state, epochs, open_bins, open_windows, then the cells of each bin, then the users and keys of each window
-- ARGV: epoch, whether the stream has finished ('1') or its epoch has ended, number of bins, these bins, these windows
local state, epochs, open_bins, open_windows = unpack(KEYS, 1, 4)
local epoch, finished, bins = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local GIVEN_KEYS, GIVEN_ARGUMENTS = 4, 3
local held = redis.call('HMGET', state, 'epoch', 'released_bin')
if held[1] ~= epoch then return 'conflict' end
if not finished and redis.call('HEXISTS', epochs, epoch .. ':end_reason') == 0 then return 'conflict' end
local reply = 'already'
for i = 1, #ARGV - GIVEN_ARGUMENTS do
  local name = ARGV[GIVEN_ARGUMENTS + i]
  -- A later epoch counts the bins that were not released.
  if finished or tonumber(name) <= tonumber(held[2]) then
    redis.call('UNLINK', KEYS[GIVEN_KEYS + i])
    redis.call('ZREM', i <= bins and open_bins or open_windows, name)
    reply = 'done'
  end
end
return reply
