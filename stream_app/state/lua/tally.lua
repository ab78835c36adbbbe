-- Add the users' records that count to the cells of sealed bins: as many of each user per window as the caps allow,
-- earlier bins first, and within a bin in the order of a hash. A call either adds the records of a shard that count and
-- deletes the shard, or deletes some records that cannot count, or leaves it unchanged.
-- KEYS: state, untallied, operator_counts, then for each shard: its records, the users of its window, the cells of its bin
-- ARGV: strategy hash, up to bin, most events of a user, most fields of a call, bytes of an id, weight of an
--       event of a sum (0: none), most keys of a user (0: no cap on keys), most events of a user in a key, consecutive
--       places of a key, fields looked through at once before a shard that is too large is tallied (0: none are), names
--       of the shards. A record's place is its cell. With a sum it is its key and its amount:
--       key * (weight + 1) + amount, which adds weight - amount to cell 2 * key and amount to the next one
-- Replies: 'already' if no shard is left; 'done' means call again, also if the caller saw other shards
#include counts
local state, untallied, operator_counts = unpack(KEYS, 1, 3)
local strategy_hash, up_to_bin = ARGV[1], ARGV[2]
local most_events, most_fields, id_bytes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local weight, most_keys = tonumber(ARGV[6]), tonumber(ARGV[7])
local most_of_key, key_places, trimmed_at_once = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local GIVEN_KEYS, GIVEN_ARGUMENTS = 3, 10
local shards = #ARGV - GIVEN_ARGUMENTS

local held = redis.call('HMGET', state, 'strategy_hash', 'sealed_bin')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
if tonumber(up_to_bin) > tonumber(held[2]) then return 'not_sealed' end

-- Return the place of a field, which is the id of a user and then the place.
local function cell_of(field)
  local a, b, c, d = string.byte(field, id_bytes + 1, id_bytes + 4)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function by_rank(a, b) return a.rank < b.rank end

-- Both return how many records of each place count, and how many records do not count.
#include chosen_events
#include chosen_keys
#include users_trimmed
local choose = most_keys == 0 and choose_events or choose_keys

local function tally(records, window_users, bin_cells)
  local added, over = choose(redis.call('HGETALL', records), window_users)
  local cells, numbers = {}, {}
  local function add(cell, number)
    if number == 0 then return end
    if not numbers[cell] then cells[#cells + 1], numbers[cell] = cell, 0 end
    numbers[cell] = numbers[cell] + number
  end
  for cell, number in pairs(added) do
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
  if trim(records) then break end
  tally(records, users, cells)
  redis.call('ZREM', untallied, name)
end
return 'done'
