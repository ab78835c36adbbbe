-- Take or keep a stream's lease, unless another owner holds it.
-- KEYS: lease
-- ARGV: owner, milliseconds (0: give it up)
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 'conflict' end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 'done'
