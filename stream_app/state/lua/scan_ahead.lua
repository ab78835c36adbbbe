-- Return some of a partition's records set aside that are dated up to a bin; there may be any number of names.
-- KEYS: the partition's records set aside
-- ARGV: cursor, newest bin, about how many names to look at
-- Replies: packed {next cursor, names}
local ahead, cursor, newest_bin = KEYS[1], ARGV[1], tonumber(ARGV[2])
local next_cursor, entries = unpack(redis.call('HSCAN', ahead, cursor, 'COUNT', ARGV[3]))
local names = {}
for i = 1, #entries, 2 do
  local bin = tonumber(string.match(entries[i], '^%-?%d+'))
  if bin and bin <= newest_bin then names[#names + 1] = entries[i] end
end
return cmsgpack.pack({next_cursor, names})
