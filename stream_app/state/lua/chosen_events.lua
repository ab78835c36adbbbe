-- Included by tally.lua, which says what the names hold. The choice under a cap on each user's events alone: cells in
-- the order of a hash, up to the cap. Of each user the number of records that counted in the window is kept.

-- Return how many records each user has, the users, and the user of each field.
local function total_of_each_user(entries)
  local totals, users, owners = {}, {}, {}
  for i = 1, #entries, 2 do
    if entries[i] ~= '' then -- see counts.lua
      local user = string.sub(entries[i], 1, id_bytes)
      local total = totals[user]
      if not total then users[#users + 1] = user end
      totals[user] = (total or 0) + entries[i + 1]
      owners[i] = user
    end
  end
  return totals, users, owners
end

-- Return how many records of each cell count, and by how many records all users together exceed the cap.
local function chosen(entries, owners, totals, rooms)
  local counts, crowded, over = {}, {}, 0
  local function add(field, number)
    local cell = cell_of(field)
    counts[cell] = (counts[cell] or 0) + number
  end
  for i = 1, #entries, 2 do
    local user = owners[i]
    if user and totals[user] <= rooms[user] then
      add(entries[i], entries[i + 1])
    elseif user and rooms[user] > 0 then
      crowded[user] = crowded[user] or {}
      table.insert(crowded[user], {rank = redis.sha1hex(entries[i]), field = entries[i], number = entries[i + 1]})
    end
  end
  for user, total in pairs(totals) do over = over + math.max(total - rooms[user], 0) end
  for user, records in pairs(crowded) do
    local room = rooms[user]
    table.sort(records, by_rank)
    for _, record in ipairs(records) do
      local number = math.min(record.number, room)
      if number == 0 then break end
      add(record.field, number)
      room = room - number
    end
  end
  return counts, over
end

local function choose_events(entries, window_users)
  local totals, users, owners = total_of_each_user(entries)
  local counted = get_counts(window_users, users, 1, #users)
  local rooms, changed = {}, {}
  for _, user in ipairs(users) do
    local before = counted[user]
    local room = math.max(most_events - before, 0)
    rooms[user] = room
    if room > 0 then
      counted[user] = before + math.min(totals[user], room)
      changed[#changed + 1] = user
    end
  end
  local added, over = chosen(entries, owners, totals, rooms)
  set_counts(window_users, changed, counted, 1, #changed)
  return added, over
end
