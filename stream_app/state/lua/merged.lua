-- Included by scripts that keep users' records (waiting.lua). It leaves out records that cannot count, and merges the
-- entries of a shard when the shard has grown fourfold.

local function sort_by_hash(fields)
  local rank_of = {}
  for _, field in ipairs(fields) do rank_of[field] = redis.sha1hex(field) end
  table.sort(fields, function(a, b) return rank_of[a] < rank_of[b] end)
end

-- Delete a user's fields after the first `most` in the order of their hashes; return how many records they had.
local function delete_after_first(fields, numbers, most)
  local over = 0
  sort_by_hash(fields)
  for i = most + 1, #fields do
    over = over + numbers[fields[i]]
    numbers[fields[i]] = nil
  end
  return over
end

-- Delete a user's fields after the first `most` keys, and after the first `of_key` places of each; return as above.
local function delete_after_first_keys(fields, numbers, most, of_key)
  local of_keys, keys, over = {}, {}, 0
  for _, field in ipairs(fields) do
    local key = string.sub(field, 1, ID_BYTES + KEY_BYTES) .. '\0\0\0\0'
    if not of_keys[key] then keys[#keys + 1], of_keys[key] = key, {} end
    table.insert(of_keys[key], field)
  end
  sort_by_hash(keys)
  for i, key in ipairs(keys) do
    over = over + delete_after_first(of_keys[key], numbers, i > most and 0 or of_key)
  end
  return over
end

-- Of each user keep only the first `most` places in the order of a hash, as no others can count: each of these has a record
-- or more, and at most that many records of a user count. With caps on keys (`of_key` above 0) `most` is a number of keys.
-- Return how many records the others had.
local function trim(fields, numbers, most, of_key)
  local of_users, over = {}, 0
  for _, field in ipairs(fields) do
    local user = string.sub(field, 1, ID_BYTES)
    of_users[user] = of_users[user] or {}
    table.insert(of_users[user], field)
  end
  for _, own in pairs(of_users) do
    if #own > most then
      over = over + (of_key > 0 and delete_after_first_keys or delete_after_first)(own, numbers, most, of_key)
    end
  end
  return over
end

-- Return entries for the numbers of records by field, without those that cannot count, and how many those are.
local function entries_left(fields, numbers, most, of_key)
  local over, left = most > 0 and trim(fields, numbers, most, of_key) or 0, {}
  for _, field in ipairs(fields) do
    if numbers[field] then left[#left + 1] = entries_of(field, numbers[field]) end
  end
  return left, over
end

-- Merge a shard of this many entries if it has grown enough, from a least size on. Without merging it would grow with every
-- event; with it, with the users and their places. Return whether it was merged, and how many records cannot count.
local function merge(records, entries, least, most, of_key)
  if entries < least then return false, 0 end
  local packed = redis.call('GET', records)
  if entries < GROWTH * merged_entries(packed) then return false, 0 end
  local fields, numbers, format = {}, {}, '>c' .. FIELD .. 'I4'
  for at = HEADER + 1, #packed, ENTRY do
    local field, number = struct.unpack(format, packed, at)
    if not numbers[field] then fields[#fields + 1] = field end
    numbers[field] = (numbers[field] or 0) + number
  end
  local left, over = entries_left(fields, numbers, most, of_key)
  write_shard(records, #left, table.concat(left))
  return true, over
end
