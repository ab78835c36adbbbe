-- Included by scripts that add to many fields of a hash. HMGET and HSET name the key once for a thousand fields,
-- where an HINCRBY each would write it into the append-only file for every field.
local FIELDS_AT_ONCE = 1000

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
    local pairs_of = {}
    for i = start, math.min(start + FIELDS_AT_ONCE - 1, last) do
      pairs_of[#pairs_of + 1] = fields[i]
      pairs_of[#pairs_of + 1] = string.format('%.0f', counts[fields[i]])
    end
    redis.call('HSET', key, unpack(pairs_of))
  end
end
