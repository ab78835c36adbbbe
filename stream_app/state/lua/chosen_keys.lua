-- Included by tally.lua, which says what the names hold. The choice under caps on each user's keys and on the events in
-- each key (core/counting/choosing.py has the rule and its proof). Of each user the keys that counted in the window are
-- kept, with their numbers of records, as packed lists {key, number, key, number, ...} of a few keys: pages. A page is
-- written anew when one of its keys counts again, so small pages keep the append-only file small.
local KEYS_OF_PAGE = 6

-- The first page of a user is named by the user's id alone, the others by the id and the page's number.
local function page_name(user, page) return page == 0 and user or user .. string.char(page) end

local function packed_place(place)
  return string.char(math.floor(place / 16777216), math.floor(place / 65536) % 256, math.floor(place / 256) % 256,
    place % 256)
end

-- Return the users of a shard, and for each of them its records in this bin: {field, number, field, number, ...}.
local function records_of_users(entries)
  local users, records = {}, {}
  for i = 1, #entries, 2 do
    if entries[i] ~= '' then -- see counts.lua
      local user = string.sub(entries[i], 1, id_bytes)
      local own = records[user]
      if own then
        local n = #own
        own[n + 1], own[n + 2] = entries[i], tonumber(entries[i + 1])
      else
        users[#users + 1] = user
        records[user] = {entries[i], tonumber(entries[i + 1])}
      end
    end
  end
  return users, records
end

-- Return the list {key, number, key, number, ...} of each user that counted before, all pages joined.
local function counted_before(window_users, users)
  local before, waiting, page = {}, users, 0
  while #waiting > 0 do
    local full = {}
    for start = 1, #waiting, FIELDS_AT_ONCE do
      local last = math.min(start + FIELDS_AT_ONCE - 1, #waiting)
      local names = {}
      for i = start, last do names[i - start + 1] = page_name(waiting[i], page) end
      for i, packed in ipairs(redis.call('HMGET', window_users, unpack(names))) do
        if packed then
          local user, list = waiting[start + i - 1], cmsgpack.unpack(packed)
          if #list == 2 * KEYS_OF_PAGE then full[#full + 1] = user end
          if page == 0 then
            before[user] = list
          else
            for _, number in ipairs(list) do table.insert(before[user], number) end
          end
        end
      end
    end
    waiting, page = full, page + 1
  end
  return before
end

-- Add a record to a user's list as far as the caps allow. Return how many of its events count, and the key's place.
-- `place` is the key's place in the list, nil for a new key; `room` is left of the cap over all keys.
local function take(list, place, key, number, room)
  local in_key = place and list[place + 1] or 0
  number = math.min(number, most_of_key - in_key, room)
  if number <= 0 or not place and #list / 2 >= most_keys then return 0 end
  if not place then
    place = #list + 1
    list[place] = key
  end
  list[place + 1] = in_key + number
  return number, place
end

local function read_records(own)
  local records = {}
  for i = 1, #own, 2 do
    local cell = cell_of(own[i])
    records[#records + 1] = {key = math.floor(cell / key_places), cell = cell, field = own[i], number = own[i + 1]}
  end
  return records
end

-- Return whether all records of a user may count. Then their order does not matter, and needs no hashes.
local function all_fit(records, list, place_of, room)
  local in_keys, keys = {}, #list / 2
  for _, record in ipairs(records) do
    local place = place_of[record.key]
    if not place and not in_keys[record.key] then keys = keys + 1 end
    local number = (in_keys[record.key] or place and list[place + 1] or 0) + record.number
    in_keys[record.key] = number
    room = room - record.number
    if number > most_of_key or room < 0 or keys > most_keys then return false end
  end
  return true
end

-- Sort a user's records in the order of choosing: known keys first, then by the hashes of the key and of the place.
local function sort_records(user, records, place_of)
  local ranks = {}
  for _, record in ipairs(records) do
    local key = record.key
    if not ranks[key] then
      ranks[key] = (place_of[key] and '0' or '1') .. redis.sha1hex(user .. packed_place(key * key_places))
    end
    record.rank = key_places > 1 and ranks[key] .. redis.sha1hex(record.field) or ranks[key]
  end
  table.sort(records, by_rank)
end

-- Choose the records of one user that count: add them to `counts` and to the user's list. Return how many do not count,
-- and the list's places that changed.
local function choose_of_user(user, own, list, counts)
  local place_of, room, over, changed = {}, most_events, 0, {}
  for i = 1, #list, 2 do
    place_of[list[i]] = i
    room = room - list[i + 1]
  end
  local records = read_records(own)
  if not all_fit(records, list, place_of, room) then sort_records(user, records, place_of) end
  for _, record in ipairs(records) do
    local number, place = take(list, place_of[record.key], record.key, record.number, room)
    if place then
      place_of[record.key] = place
      changed[#changed + 1] = place
      room = room - number
      counts[record.cell] = (counts[record.cell] or 0) + number
    end
    over = over + record.number - number
  end
  return over, changed
end

-- The same for a user with one record in this bin, as most users have: it needs no order and no tables.
local function choose_single(own, list, counts)
  local cell, number = cell_of(own[1]), own[2]
  local key, place, left = math.floor(cell / key_places), nil, most_events
  for i = 1, #list, 2 do
    if list[i] == key then place = i end
    left = left - list[i + 1]
  end
  local taken, changed = take(list, place, key, number, left)
  if changed then counts[cell] = (counts[cell] or 0) + taken end
  return number - taken, {changed}
end

-- Add the pages of a user's list that hold changed places to `writes`.
local function write_pages(user, list, changed, writes)
  local written = {}
  for _, place in ipairs(changed) do
    local page = math.floor(place / (2 * KEYS_OF_PAGE))
    if not written[page] then
      written[page] = true
      local first = 2 * KEYS_OF_PAGE * page + 1
      local all = #list <= 2 * KEYS_OF_PAGE
      local held = all and list or {unpack(list, first, math.min(first + 2 * KEYS_OF_PAGE - 1, #list))}
      local n = #writes
      writes[n + 1], writes[n + 2] = page_name(user, page), cmsgpack.pack(held)
    end
  end
end

local function choose_keys(entries, window_users)
  local users, records = records_of_users(entries)
  local before = counted_before(window_users, users)
  local counts, over, writes = {}, 0, {}
  for _, user in ipairs(users) do
    local own, list, beyond, changed = records[user], before[user] or {}
    if #own == 2 then
      beyond, changed = choose_single(own, list, counts)
    else
      beyond, changed = choose_of_user(user, own, list, counts)
    end
    over = over + beyond
    if #changed > 0 then write_pages(user, list, changed, writes) end
  end
  for start = 1, #writes, 2 * FIELDS_AT_ONCE do
    redis.call('HSET', window_users, unpack(writes, start, math.min(start + 2 * FIELDS_AT_ONCE - 1, #writes)))
  end
  return counts, over
end
