-- Included by tally.lua, which says what the names hold. The choice under a cap on each user's events alone: cells in
-- the order of a hash, up to the cap. Of each user the number of records that counted in the window is kept. Where users are
-- counted by their numbers of events, it is the number of all records of the user: up to the cap, that many have counted.

-- Add the records of a user's places up to `room`, in the order of their hashes. Return the places that count.
local function add_first(user, place, number, others, room, added)
  local records, places = {{rank = rank_of(user, place), place = place, number = number}}, {}
  for other, records_there in pairs(others or {}) do
    records[#records + 1] = {rank = rank_of(user, other), place = other, number = records_there}
  end
  table.sort(records, by_rank)
  for _, record in ipairs(records) do
    local taken = math.min(record.number, room)
    if taken == 0 then break end
    added[record.place] = (added[record.place] or 0) + taken
    places[#places + 1] = record.place
    room = room - taken
  end
  return places
end

-- Add all records of a user's places. Return these places.
local function add_all(place, number, others, added)
  local counted = {place}
  added[place] = (added[place] or 0) + number
  for other, records in pairs(others or {}) do
    added[other] = (added[other] or 0) + records
    counted[#counted + 1] = other
  end
  return counted
end

-- Return the bucket of a number of records: powers of two.
local function bucket_of(number)
  local bucket = 0
  while number >= 2 and bucket < BUCKETS - 1 do bucket, number = bucket + 1, math.floor(number / 2) end
  return bucket
end

-- Note that a user's number of records has grown.
local function move_user(before, after, moved)
  local from, to = before > 0 and bucket_of(before), bucket_of(after)
  if from == to then return end
  if from then moved[from] = (moved[from] or 0) - 1 end
  moved[to] = (moved[to] or 0) + 1
end

local function choose_events(people, window_users, added, moved)
  local users, places, numbers, others = people.users, people.places, people.numbers, people.others
  local over, writes, n = 0, {}, 0
  for start = 1, #users, FIELDS_AT_ONCE do
    local stop = math.min(start + FIELDS_AT_ONCE - 1, #users)
    local held = redis.call('HMGET', window_users, unpack(users, start, stop))
    for i = start, stop do
      local place, number, more = places[i], numbers[i], others[i]
      local before, total = tonumber(held[i - start + 1] or 0), number
      for _, records in pairs(more or {}) do total = total + records end
      local taken = math.min(total, math.max(most_events - before, 0))
      if taken > 0 then
        local counted = taken == total and add_all(place, number, more, added)
          or add_first(users[i], place, number, more, taken, added)
        if keyed then bring(users[i], counted, window_users, added) end
      end
      local kept = before + taken
      if users_at >= 0 then
        kept = before + total
        move_user(before, kept, moved)
      end
      if kept > before then
        writes[n + 1], writes[n + 2] = users[i], text_of[kept]
        n = n + 2
      end
      over = over + total - taken
    end
  end
  write_fields(window_users, writes)
  return over
end
