-- Included by scripts that count users' records. They use HMGET and HSET, which name the key once for a
-- thousand fields. HINCRBY would write the key into the append-only file once for every field.
local FIELDS_AT_ONCE = 1000

-- Redis writes a number of Lua with 17 digits, which takes longer than to find its text in this table.
local text_of = setmetatable({}, {__index = function(texts, number)
  local text = string.format('%.0f', number)
  texts[number] = text
  return text
end})

local function get_counts(key, fields, first, last)
  local counts = {}
  for start = first, last, FIELDS_AT_ONCE do
    local held = redis.call('HMGET', key, unpack(fields, start, math.min(start + FIELDS_AT_ONCE - 1, last)))
    for i = 1, #held do counts[fields[start + i - 1]] = tonumber(held[i] or 0) end
  end
  return counts
end

-- Write a list {field, value, field, value, ...} into a hash.
local function write_fields(key, list)
  for start = 1, #list, 2 * FIELDS_AT_ONCE do
    redis.call('HSET', key, unpack(list, start, math.min(start + 2 * FIELDS_AT_ONCE - 1, #list)))
  end
end
