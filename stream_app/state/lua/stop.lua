-- Stop counting after a stream's last epoch has ended, and delete what was counted for later bins.
-- From then on no record is counted until an epoch opens (apply.lua, open_epoch.lua).
-- KEYS: state, epochs, open_bins, open_windows, untallied, then the cells of each open bin, the users of each open window,
--       the records of each shard of users, and what is set aside in each partition
-- ARGV: epoch, expected seq, numbers of bins and windows, then these bins, these windows, these shards
local state, epochs, open_bins, open_windows, untallied = unpack(KEYS, 1, 5)
local epoch, expected_seq, bins, windows = unpack(ARGV, 1, 4)
local GIVEN_KEYS, GIVEN_ARGUMENTS = 5, 4
bins, windows = tonumber(bins), tonumber(windows)
local held = redis.call('HMGET', state, 'epoch', 'seq')
if held[1] ~= epoch or held[2] ~= expected_seq then return 'conflict' end
if redis.call('HEXISTS', epochs, epoch .. ':end_reason') == 0 then return 'conflict' end
-- The counter has exact counts of nodes that the epoch leaves open; no later epoch goes on with it.
redis.call('HSET', state, 'stopped', '1', 'counter', '')
redis.call('HDEL', state, 'change') -- the next epoch begins afresh, with the settings of its configuration
for i = GIVEN_KEYS + 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
for i = GIVEN_ARGUMENTS + 1, #ARGV do
  local place = i - GIVEN_ARGUMENTS
  local set = place <= bins and open_bins or place <= bins + windows and open_windows or untallied
  redis.call('ZREM', set, ARGV[i])
end
return 'done'
