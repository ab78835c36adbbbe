-- Remove the oldest epoch of a stream: its rows, its tiles and its record. The place and the hash of its last row stay.
-- Compares before it removes: the epoch has ended, none is older, and readers see a row after it.
-- KEYS: epochs, visible, chain, then the tiles
-- ARGV: epoch, seq of its last row, what stays of it (empty if the store has no row of it), the format that is needed
local epochs, visible, chain = unpack(KEYS, 1, 3)
local epoch, last_seq, left, format = unpack(ARGV, 1, 4)
local GIVEN_KEYS = 3

if redis.call('HEXISTS', epochs, epoch .. ':end_reason') == 0 then return 'conflict' end
if tonumber(redis.call('GET', visible) or '0') <= tonumber(last_seq) then return 'conflict' end
for _, number in ipairs(redis.call('HKEYS', epochs)) do
  if string.match(number, '^%d+$') and tonumber(number) < tonumber(epoch) then return 'conflict' end
end

redis.call('XTRIM', chain, 'MINID', string.format('%.0f-0', tonumber(last_seq) + 1))
for i = GIVEN_KEYS + 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
redis.call('HDEL', epochs, epoch, epoch .. ':last_bin', epoch .. ':end_reason', epoch .. ':found')
if left ~= '' then redis.call('HSET', epochs, 'trimmed', left) end
if tonumber(redis.call('HGET', epochs, 'format') or '1') < tonumber(format) then
  redis.call('HSET', epochs, 'format', format)
end
return 'done'
