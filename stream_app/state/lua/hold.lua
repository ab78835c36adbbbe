-- Take or keep a stream's lease, unless another owner holds it whose witness remembers as many lost rows.
-- KEYS: lease
-- ARGV: owner, milliseconds (0: give it up), the last row of the owner's witness if the store lacks it (else 0)
local held = redis.call('GET', KEYS[1])
local lost = tonumber(ARGV[3])
if held then
  local owner, others = string.match(held, '^([^\n]*)\n?(%d*)$')
  others = tonumber(others) or 0
  if owner ~= ARGV[1] and others >= lost then return others > 0 and 'behind' or 'conflict' end
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], lost > 0 and ARGV[1] .. '\n' .. ARGV[3] or ARGV[1], 'PX', ARGV[2])
end
return 'done'
