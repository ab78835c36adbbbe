-- Add the users' records that count to the cells of sealed bins: up to the cap of each user per window, earlier bins
-- first, and within a bin cells in the order of a hash. A call either adds the records of a shard that count and deletes
-- the shard, or leaves it unchanged.
-- KEYS: state, untallied, operator_counts, then for each shard: its records, the users of its window, the cells of its bin
-- ARGV: strategy hash, up to bin, most events of a user, most fields of a call, bytes of an id, weight of an
--       event of a sum (0: none), names of the shards. With a sum, a record's cell is its key and its amount:
--       key * (weight + 1) + amount, which adds weight - amount to cell 2 * key and amount to the next one
-- Replies: 'already' if no shard is left; 'done' means call again, also if the caller saw other shards
#include counts
local state, untallied, operator_counts = unpack(KEYS, 1, 3)
local strategy_hash, up_to_bin = ARGV[1], ARGV[2]
local most_events, most_fields, id_bytes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local weight = tonumber(ARGV[6])
local GIVEN_KEYS, GIVEN_ARGUMENTS = 3, 6
local shards = #ARGV - GIVEN_ARGUMENTS

local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
if tonumber(up_to_bin) > tonumber(held[2]) then return 'not_sealed' end

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

local function cell_of(packed)
  local a, b, c, d = string.byte(packed, 1, 4)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function by_rank(a, b) return a.rank < b.rank end

-- Return how many records of each packed cell count, and by how many records all users together exceed the cap.
local function chosen(entries, owners, totals, rooms)
  local counts, crowded, over = {}, {}, 0
  local function add(field, number)
    local cell = string.sub(field, id_bytes + 1)
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

local function tally(records, window_users, bin_cells)
  local entries = redis.call('HGETALL', records)
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
  local cells, numbers = {}, {}
  local function add(cell, number)
    if number == 0 then return end
    if not numbers[cell] then cells[#cells + 1], numbers[cell] = cell, 0 end
    numbers[cell] = numbers[cell] + number
  end
  for packed, number in pairs(added) do
    local cell = cell_of(packed)
    if weight == 0 then
      add(cell, number)
    else
      local amount = cell % (weight + 1)
      local key = (cell - amount) / (weight + 1)
      add(2 * key, number * (weight - amount))
      add(2 * key + 1, number * amount)
    end
  end
  local counts = get_counts(bin_cells, cells, 1, #cells)
  for cell, number in pairs(numbers) do counts[cell] = counts[cell] + number end
  set_counts(bin_cells, cells, counts, 1, #cells)
  if over > 0 then redis.call('HINCRBY', operator_counts, 'over_cap', over) end
  redis.call('UNLINK', records)
end

local found = redis.call('ZRANGEBYSCORE', untallied, '-inf', up_to_bin, 'LIMIT', 0, math.max(shards, 1))
if #found == 0 then return 'already' end
local fields = 0
for i = 1, shards do
  local name = ARGV[GIVEN_ARGUMENTS + i]
  if found[i] ~= name then break end
  local records, users, cells = unpack(KEYS, GIVEN_KEYS + 3 * i - 2, GIVEN_KEYS + 3 * i)
  fields = fields + redis.call('HLEN', records) - 1
  if i > 1 and fields > most_fields then break end
  tally(records, users, cells)
  redis.call('ZREM', untallied, name)
end
return 'done'
