-- Included by tally.lua, which says what the names hold. One user may have records in every cell of a bin, and a script
-- that reads them all would hold up other streams. At most `most_events` records of a user count, in the order of a
-- hash: so cells after the user's first `most_events` ones in that order never count. They are deleted here before the
-- choice, some fields in a call.

-- How far a shard was looked through: after the dots of AS_TABLE a place of HSCAN, and 'd' if cells were deleted on the way.
local function progress_of(records)
  local mark = redis.call('HGET', records, '') or ''
  return string.match(mark, '^%.*(%d*)(d?)(e?)$')
end

-- Return the records of each user among the fields from a place on, and the next place.
local function some_of_each_user(records, place)
  local scanned = redis.call('HSCAN', records, place, 'COUNT', trimmed_at_once)
  local entries, of_users, seen = scanned[2], {}, {}
  for i = 1, #entries, 2 do
    if entries[i] ~= '' and not seen[entries[i]] then -- HSCAN may name a field twice
      seen[entries[i]] = true
      local user = string.sub(entries[i], 1, id_bytes)
      of_users[user] = of_users[user] or {}
      table.insert(of_users[user], {field = entries[i], number = tonumber(entries[i + 1])})
    end
  end
  return of_users, scanned[1]
end

-- Delete a user's cells after the first ones of a list; return how many records they had.
local function delete_after_first(records, list)
  for _, record in ipairs(list) do record.rank = redis.sha1hex(record.field) end
  table.sort(list, by_rank)
  local over, fields = 0, {}
  for i = most_events + 1, #list do
    over = over + list[i].number
    fields[#fields + 1] = list[i].field
  end
  for start = 1, #fields, FIELDS_AT_ONCE do
    redis.call('HDEL', records, unpack(fields, start, math.min(start + FIELDS_AT_ONCE - 1, #fields)))
  end
  return over
end

-- Look through some fields of a shard; return whether the caller has to call again before it tallies the shard.
local function trim(records)
  if trimmed_at_once == 0 or redis.call('HLEN', records) <= 2 * trimmed_at_once then return false end
  local place, deleted, ended = progress_of(records)
  if ended == 'e' then return false end
  local of_users, next_place = some_of_each_user(records, place == '' and '0' or place)
  local over = 0
  for _, list in pairs(of_users) do
    if #list > most_events then over, deleted = over + delete_after_first(records, list), 'd' end
  end
  if next_place == '0' then
    next_place, deleted = '', deleted == 'd' and '' or 'e' -- looked through: again, or nothing more can be deleted
  end
  redis.call('HSET', records, '', AS_TABLE .. next_place .. deleted)
  if over > 0 then redis.call('HINCRBY', operator_counts, 'over_cap', over) end
  return true
end
