-- Seal the bins whose cuts all known and all listed partitions have reached.
-- KEYS: state, base_bins
-- ARGV: strategy hash, up to bin, listed partitions...
-- Replies: the sealed bin as text; nothing for a stream that was never opened
local state, base_bins = unpack(KEYS)
local strategy_hash, up_to_bin = ARGV[1], tonumber(ARGV[2])
local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin', 'until_bin')
if not held[1] or held[1] ~= strategy_hash then return held[2] end
-- The stream may end before that bin.
if held[3] and tonumber(held[3]) <= up_to_bin then up_to_bin = tonumber(held[3]) - 1 end
for i = 3, #ARGV do
  -- A partition that was not started yet allows no bin.
  if redis.call('HEXISTS', base_bins, ARGV[i]) == 0 then return held[2] end
end
local allowed
for _, bin in ipairs(redis.call('HVALS', base_bins)) do
  allowed = math.min(tonumber(bin), allowed or up_to_bin)
end
if not allowed or allowed <= tonumber(held[2]) then return held[2] end
local sealed_bin = string.format('%.0f', allowed)
redis.call('HSET', state, 'sealed_bin', sealed_bin)
return sealed_bin
