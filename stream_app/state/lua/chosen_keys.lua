-- Included by tally.lua, which says what the names hold. The choice under caps on each user's keys and on the events in
-- each key (core/counting/bounding.py has the rule and its proof). Of each user the keys that counted in the window are
-- kept, with their numbers of records, as packed lists {key, number, key, number, ...} of a few keys: pages. A page is
-- written anew when one of its keys counts again, so small pages keep the append-only file small.
local KEYS_OF_PAGE = 6
local NUMBERS_OF_PAGE = 2 * KEYS_OF_PAGE

-- The first page of a user is named by the user's id alone, the others by the id and the page's number.
local function page_name(user, page) return page == 0 and user or user .. string.char(page) end

-- Both read and write MessagePack, as cmsgpack does. If all numbers are below 128, each is one byte after the first, and
-- needs no decoder.
local function read_page(packed)
  if #packed == string.byte(packed) - 143 then return {string.byte(packed, 2, -1)} end
  return cmsgpack.unpack(packed)
end

local function packed_page(list)
  if not keyed and math.max(unpack(list)) < 128 then return string.char(144 + #list, unpack(list)) end
  return cmsgpack.pack(list)
end

-- Add the user's pages after the first to a list, if there are any.
local function read_more(window_users, user, list)
  local page = 1
  while #list == NUMBERS_OF_PAGE * page do
    local packed = redis.call('HGET', window_users, page_name(user, page))
    if not packed then return end
    for _, number in ipairs(read_page(packed)) do list[#list + 1] = number end
    page = page + 1
  end
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

local function key_of(place)
  return keyed and string.sub(place, 1, KEY_BYTES) or (place - place % key_places) / key_places
end

local function rank_of_key(user, key) return rank_of(user, keyed and key .. '\0\0\0\0' or key * key_places) end

-- Return the records of the first `most_keys` keys in the order of their hashes, and how many records the others have. Of
-- the others none may count where places are keyed: they may have been left out before (merged.lua).
local function of_first_keys(user, records)
  local keys, known, kept, over = {}, {}, {}, 0
  for _, record in ipairs(records) do
    local key = record.key
    if not known[key] then
      known[key] = {rank = rank_of_key(user, key)}
      keys[#keys + 1] = known[key]
    end
  end
  if #keys <= most_keys then return records, 0 end
  table.sort(keys, by_rank)
  for _, record in ipairs(records) do
    if known[record.key].rank <= keys[most_keys].rank then
      kept[#kept + 1] = record
    else
      over = over + record.number
    end
  end
  return kept, over
end

local function read_records(place, number, others)
  local records = {{key = key_of(place), place = place, number = number}}
  for other, records_there in pairs(others) do
    records[#records + 1] = {key = key_of(other), place = other, number = records_there}
  end
  return records
end

-- Return whether all records of a user may count. Then their order does not matter, and needs no hashes.
local function all_fit(records, list, place_of, room)
  local in_keys, keys = {}, #list / 2
  for _, record in ipairs(records) do
    local key = record.key
    local place = place_of[key]
    if not place and not in_keys[key] then keys = keys + 1 end
    local number = (in_keys[key] or place and list[place + 1] or 0) + record.number
    if key_places > 1 then in_keys[key] = number end -- else no other record has this key
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
      ranks[key] = (place_of[key] and '0' or '1') .. rank_of_key(user, key)
    end
    record.rank = key_places > 1 and ranks[key] .. rank_of(user, record.place) or ranks[key]
  end
  table.sort(records, by_rank)
end

-- Choose the records of one user that count: add them to `added` and to the user's list. Return how many do not count,
-- the list's places that changed, and the places that count.
local function choose_of_user(user, records, list, added)
  local place_of, room, over, changed, counted = {}, most_events, 0, {}, {}
  if keyed then records, over = of_first_keys(user, records) end
  for i = 1, #list, 2 do
    place_of[list[i]] = i
    room = room - list[i + 1]
  end
  if not all_fit(records, list, place_of, room) then sort_records(user, records, place_of) end
  for _, record in ipairs(records) do
    local number, place = take(list, place_of[record.key], record.key, record.number, room)
    if place then
      place_of[record.key] = place
      changed[#changed + 1], counted[#counted + 1] = place, record.place
      room = room - number
      added[record.place] = (added[record.place] or 0) + number
    end
    over = over + record.number - number
  end
  return over, changed, counted
end

-- The same for a user with records in one place of this bin, as most users have: it needs no order. Return the place in
-- the list that changed, or nil.
local function choose_single(record_place, number, list, added)
  local key, place, left = key_of(record_place), nil, most_events
  for i = 1, #list, 2 do
    if list[i] == key then place = i end
    left = left - list[i + 1]
  end
  local taken, changed = take(list, place, key, number, left)
  if changed then added[record_place] = (added[record_place] or 0) + taken end
  return number - taken, changed
end

local function write_page(user, list, page, writes)
  local n, first = #writes, NUMBERS_OF_PAGE * page + 1
  local all = #list <= NUMBERS_OF_PAGE
  local held = all and list or {unpack(list, first, math.min(first + NUMBERS_OF_PAGE - 1, #list))}
  writes[n + 1], writes[n + 2] = page_name(user, page), packed_page(held)
end

-- Add the pages of a user's list that hold changed places to `writes`.
local function write_pages(user, list, changed, writes)
  local written = {}
  for _, place in ipairs(changed) do
    local page = math.floor(place / NUMBERS_OF_PAGE)
    if not written[page] then
      written[page] = true
      write_page(user, list, page, writes)
    end
  end
end

local function choose_keys(people, window_users, added)
  local users, places, numbers, others = people.users, people.places, people.numbers, people.others
  local over, writes = 0, {}
  for start = 1, #users, FIELDS_AT_ONCE do
    local stop = math.min(start + FIELDS_AT_ONCE - 1, #users)
    local held = redis.call('HMGET', window_users, unpack(users, start, stop))
    for i = start, stop do
      local user, packed, list, beyond, changed, counted = users[i], held[i - start + 1], nil, nil, nil, nil
      list = packed and read_page(packed) or {}
      if #list == NUMBERS_OF_PAGE then read_more(window_users, user, list) end
      if others[i] then
        local records = read_records(places[i], numbers[i], others[i])
        beyond, changed, counted = choose_of_user(user, records, list, added)
        write_pages(user, list, changed, writes)
      else
        beyond, changed = choose_single(places[i], numbers[i], list, added)
        counted = changed and {places[i]} or {}
        if changed then write_page(user, list, math.floor(changed / NUMBERS_OF_PAGE), writes) end
      end
      if keyed then bring(user, counted, window_users, added) end
      over = over + beyond
    end
  end
  write_fields(window_users, writes)
  return over
end
