-- Give a stream its end: no bin from this one on is ever sealed (seal.lua).
-- KEYS: state, epochs, base_bins, then the cuts of each partition
-- ARGV: the first bin that is not counted, the format that the stream needs, '1' if the next segment counts what is late at
--       the end (else empty), names of partitions
-- Replies: 'cuts_changed' if there are other partitions than the caller names
local state, epochs, base_bins = unpack(KEYS, 1, 3)
local until_bin, format, hands_over = unpack(ARGV, 1, 3)
local GIVEN = 3

-- Only cuts that are taken from now on are kept (take_cuts.lua), so none may be taken of the last bin.
local function hand_over()
  for i = GIVEN + 1, #ARGV do
    local tail = redis.call('LINDEX', KEYS[i], -1)
    local bin = string.match(tail or '', '^%S+') or redis.call('HGET', base_bins, ARGV[i])
    if tonumber(bin) >= tonumber(until_bin) - 1 then return end
  end
  redis.call('HSET', state, 'hands_over', '1')
end

local held = redis.call('HMGET', state, 'sealed_bin', 'until_bin')
if not held[1] then return 'conflict' end
if held[2] and held[2] ~= until_bin then return 'conflict' end
if hands_over ~= '' and redis.call('HLEN', base_bins) ~= #ARGV - GIVEN then return 'cuts_changed' end
if not held[2] and tonumber(held[1]) >= tonumber(until_bin) then return 'sealed' end
if hands_over ~= '' then hand_over() end
if held[2] then return 'already' end
if tonumber(redis.call('HGET', epochs, 'format') or '1') < tonumber(format) then
  redis.call('HSET', epochs, 'format', format)
end
redis.call('HSET', state, 'until_bin', until_bin)
return 'done'
