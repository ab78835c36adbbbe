-- Store which settings about arrival hold from a bin on, or take such a change back, while no record can have met it.
-- KEYS: state, epochs, base_bins, then the cuts of each partition
-- ARGV: epoch, the change that the caller saw (may be empty), the change (empty: none), the last bin that may have a
--       cut, the format that the stream needs, names of the partitions
local state, epochs, base_bins = unpack(KEYS, 1, 3)
local epoch, seen, change, last_cut_bin, format = unpack(ARGV, 1, 5)
local GIVEN_KEYS, GIVEN_ARGUMENTS = 3, 5
local held = redis.call('HMGET', state, 'epoch', 'change', 'stopped')
if not held[1] or held[1] ~= epoch or held[3] then return 'conflict' end
if (held[2] or '') == change then return 'already' end
if (held[2] or '') ~= seen then return 'conflict' end
-- The next epoch may begin before the change: it is for the worker that opens it.
if redis.call('HEXISTS', epochs, epoch .. ':end_reason') == 1 then return 'conflict' end
if redis.call('HLEN', base_bins) ~= #ARGV - GIVEN_ARGUMENTS then return 'conflict' end
for i = GIVEN_ARGUMENTS + 1, #ARGV do
  local tail = redis.call('LINDEX', KEYS[GIVEN_KEYS + i - GIVEN_ARGUMENTS], -1)
  local bin, overdue = string.match(tail or '', '^(%S+) %S+ ?(%S*)')
  bin = bin or redis.call('HGET', base_bins, ARGV[i])
  if not bin then return 'conflict' end
  -- Records before the cut may have met a bin that was next to close when the cut's answer came.
  if bin + (tonumber(overdue) or 0) > tonumber(last_cut_bin) then return 'cuts_changed' end
end
if change == '' then
  redis.call('HDEL', state, 'change')
  redis.call('HDEL', epochs, 'announced')
else
  local held_format = redis.call('HGET', epochs, 'format') or '1'
  if tonumber(format) > tonumber(held_format) then redis.call('HSET', epochs, 'format', format) end
  redis.call('HSET', state, 'change', change)
  redis.call('HSET', epochs, 'announced', change) -- for readers: the clock and the configuration decide all of it
end
return 'done'
