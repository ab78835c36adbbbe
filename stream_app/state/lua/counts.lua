-- Included by scripts that count users' records. They use HMGET and HSET, which name the key once for a
-- thousand fields. HINCRBY would write the key into the append-only file once for every field.
local FIELDS_AT_ONCE = 1000
-- A long value makes Redis store a shard as a table from the start: the other form, a list, needs linear searches.
local AS_TABLE = string.rep('.', 65)

-- Add a shard of users to the set of shards that are not tallied.
local function list_shard(untallied, bin, name, records)
  if redis.call('ZADD', untallied, bin, name) == 1 then redis.call('HSET', records, '', AS_TABLE) end
end

local function get_counts(key, fields, first, last)
  local counts = {}
  for start = first, last, FIELDS_AT_ONCE do
    local held = redis.call('HMGET', key, unpack(fields, start, math.min(start + FIELDS_AT_ONCE - 1, last)))
    for i = 1, #held do counts[fields[start + i - 1]] = tonumber(held[i] or 0) end
  end
  return counts
end

local function set_counts(key, fields, counts, first, last)
  for start = first, last, FIELDS_AT_ONCE do
    local changes, n = {}, 0
    for i = start, math.min(start + FIELDS_AT_ONCE - 1, last) do
      changes[n + 1], changes[n + 2] = fields[i], counts[fields[i]]
      n = n + 2
    end
    redis.call('HSET', key, unpack(changes))
  end
end
