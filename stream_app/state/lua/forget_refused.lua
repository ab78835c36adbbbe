-- Forget the positions of refused records whose dead letters are written; keep other positions at the front.
-- KEYS: the partition's refused positions
-- ARGV: the positions, as they were read from the front
local written, kept = {}, {}
for i = 1, #ARGV do written[ARGV[i]] = true end
for _ = 1, #ARGV do
  local position = redis.call('LPOP', KEYS[1])
  if not position then break end
  if not written[position] then kept[#kept + 1] = position end
end
for i = #kept, 1, -1 do redis.call('LPUSH', KEYS[1], kept[i]) end
return 'done'
