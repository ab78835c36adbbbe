-- Delete stored noise that no epoch uses, and the spent pages of the running epoch. The field 'key' stays.
-- KEYS: state, noise
-- ARGV: nonce with spent pages, how many of its first pages are spent, then the nonces to keep
local state, noise = unpack(KEYS)
local nonce, spent = ARGV[1], tonumber(ARGV[2])
local kept = {[redis.call('HGET', state, 'noise') or ''] = true}
for i = 3, #ARGV do kept[ARGV[i]] = true end
for _, field in ipairs(redis.call('HKEYS', noise)) do
  local own, page = string.match(field, '^(.*):(%d+)$')
  if own and (not kept[own] or (own == nonce and tonumber(page) < spent)) then
    redis.call('HDEL', noise, field)
  end
end
return 'done'
