-- Add the users' records that count to the cells of sealed bins: as many of each user per window as the caps allow,
-- earlier bins first, and within a bin in the order of a hash. A call either adds the records of a shard that count and
-- deletes the shard, or leaves it unchanged.
-- KEYS: state, untallied, operator_counts, then for each shard: its entries, the hash in which builds of format 2 counted its
--       records, the users of its window, the cells of its bin
-- ARGV: strategy hash, up to bin, most events of a user, most entries of a call, weight of an event of a sum (0: none),
--       most keys of a user (0: no cap on keys), most events of a user in a key, consecutive places of a key, the first cell of
--       users by their numbers of events (-1: none), how many keys a user brings (0: no keys are found), the place in the list
--       of the first key that no list names, the epoch and seq that the caller saw, how often the hidden keys have been
--       halved, packed numbers of keys that are public, names of the shards. A record's place is its cell. With a sum it is
--       its key and its amount: key * (weight + 1) + amount, which adds weight - amount to cell 2 * key and amount to the
--       next one. Where keys are found, places are keyed (waiting.lua)
-- Replies: 'already' if no shard is left; 'done' means call again, also if the caller saw other shards
#include counts
#include waiting
local state, untallied, operator_counts = unpack(KEYS, 1, 3)
local strategy_hash, up_to_bin = ARGV[1], ARGV[2]
local most_events, most_entries, weight = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local most_keys, most_of_key, key_places = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local users_at = tonumber(ARGV[9])
local per_user, first_unlisted, epoch, seq = tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12], ARGV[13]
local thinned = tonumber(ARGV[14])
local keyed = per_user > 0
local GIVEN_KEYS, GIVEN_ARGUMENTS = 3, 15
local BUCKETS = 21 -- as dphist/users.py
local shards = #ARGV - GIVEN_ARGUMENTS

local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin', 'epoch', 'seq')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
if tonumber(up_to_bin) > tonumber(held[2]) then return 'not_sealed' end
-- Which keys are public follows from all earlier bins.
if per_user > 0 and (held[3] ~= epoch or held[4] ~= seq) then return 'conflict' end
local shown = {}
for _, number in ipairs(cmsgpack.unpack(ARGV[15])) do shown[number] = true end
set_keyed(keyed)

-- Return the entries of a shard without their header.
local function all_entries(records, counted)
  local packed = redis.call('GET', records)
  if packed then merged_entries(packed) end -- refuses another format
  local entries = {string.sub(packed or '', HEADER + 1)}
  local held = redis.call('HGETALL', counted)
  for i = 1, #held, 2 do
    if held[i] ~= '' then entries[#entries + 1] = entries_of(held[i], tonumber(held[i + 1])) end -- '' had no record
  end
  return table.concat(entries)
end

local function rank_of(user, place) return redis.sha1hex(user .. (keyed and place or struct.pack('>I4', place))) end

local function by_rank(a, b) return a.rank < b.rank end

-- Both add what counts to the numbers by place, and return how many records do not count.
#include brought
#include chosen_events
#include chosen_keys
local choose = most_keys == 0 and choose_events or choose_keys

-- Return the users of a shard, each with a place, its number of records there, and the numbers of further places by place
-- or nil. A table for each user would cost more than the choice: most users have records in one place of a bin.
local function people_of(packed)
  local users, places, numbers, others, known, n = {}, {}, {}, {}, {}, 0
  local unpack_entry, format = struct.unpack, keyed and '>c16c20I4' or '>c16I4I4'
  for at = 1, #packed, ENTRY do
    local user, place, number = unpack_entry(format, packed, at)
    local i = known[user]
    if not i then
      n = n + 1
      known[user], users[n], places[n], numbers[n] = n, user, place, number
    elseif places[i] == place then
      numbers[i] = numbers[i] + number
    else
      local more = others[i] or {}
      more[place] = (more[place] or 0) + number
      others[i] = more
    end
  end
  return {users = users, places = places, numbers = numbers, others = others}
end

-- Add the chosen records of a bin to its cells.
local function add_to_cells(bin_cells, by_place, moved, window_users)
  local cells, numbers = {}, {}
  local function add(cell, number)
    if number == 0 then return end
    if not numbers[cell] then cells[#cells + 1], numbers[cell] = cell, 0 end
    numbers[cell] = numbers[cell] + number
  end
  for place, number in pairs(by_place) do
    local is_of_users = keyed and type(place) == 'number' -- who bring a key
    if keyed and not is_of_users then place = numbered(place, window_users) end
    if weight == 0 or is_of_users then
      add(place, number)
    else
      local amount = place % (weight + 1)
      local key = (place - amount) / (weight + 1)
      add(2 * key, number * (weight - amount))
      add(2 * key + 1, number * amount)
    end
  end
  for bucket, number in pairs(moved) do add(users_at + bucket, number) end
  local counts, changes = get_counts(bin_cells, cells, 1, #cells), {}
  for i, cell in ipairs(cells) do
    changes[2 * i - 1], changes[2 * i] = text_of[cell], text_of[counts[cell] + numbers[cell]]
  end
  write_fields(bin_cells, changes)
end

-- Return the first shards that are not tallied, as the caller named them: each once, whatever members stand for it.
local function first_shards()
  local found, known = {}, {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', untallied, '-inf', up_to_bin, 'LIMIT', 0, math.max(shards, 1))) do
    local shard = string.match(member, '^(%-?%d+:%-?%d+:%d+)')
    if not known[shard] then found[#found + 1], known[shard] = shard, true end
  end
  return found
end

local found = first_shards()
if #found == 0 then return 'already' end
local entries, over, added, moved, users_of, keys, members = 0, 0, {}, {}, {}, {}, {}
for i = 1, shards do
  local shard = ARGV[GIVEN_ARGUMENTS + i]
  local records, counted, users, cells = unpack(KEYS, GIVEN_KEYS + 4 * i - 3, GIVEN_KEYS + 4 * i)
  if found[i] ~= shard then break end
  entries = entries + entries_in(records) + redis.call('HLEN', counted)
  if i > 1 and entries > most_entries then break end
  added[cells], moved[cells], users_of[cells] = added[cells] or {}, moved[cells] or {}, users
  over = over + choose(people_of(all_entries(records, counted)), users, added[cells], moved[cells])
  keys[2 * i - 1], keys[2 * i], members[2 * i - 1], members[2 * i] = records, counted, shard, member_of(shard)
end
for cells, by_place in pairs(added) do add_to_cells(cells, by_place, moved[cells], users_of[cells]) end
if over > 0 then redis.call('HINCRBY', operator_counts, 'over_cap', text_of[over]) end
if #keys > 0 then
  redis.call('UNLINK', unpack(keys))
  redis.call('ZREM', untallied, unpack(members))
end
return 'done'
