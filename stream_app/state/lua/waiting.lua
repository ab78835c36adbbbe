-- Included by scripts that keep or choose users' records. They wait until their bin is sealed, because only then it is
-- known which of them count. A shard of users is one string: how many entries were left when it was last merged (4 bytes),
-- then entries: the id of a user, a place, a number of records. Appending is much faster than adding to a counter for each
-- user and place. So a user's place may have several entries, and a string that has grown fourfold is merged.
-- A place is a number of 4 bytes. If it is `keyed`, it is a key of 16 bytes and a step of 4: the key is a number, or the hash
-- of a key that no list names; the step is the amount of a sum.
local ID_BYTES, KEY_BYTES, HEADER = 16, 16, 4
local GROWTH, LARGEST_NUMBER = 4, 4294967295
local FIELD, ENTRY, MARK = 20, 24, 0 -- the mark is added to the number in the header

local function set_keyed(keyed)
  if keyed then FIELD, ENTRY, MARK = 36, 40, 2147483648 else FIELD, ENTRY, MARK = 20, 24, 0 end
end

-- Return the number of entries when a shard was last merged.
local function merged_entries(packed)
  local number = struct.unpack('>I4', packed) - MARK
  assert(number >= 0 and number < 2147483648, 'records wait in another format; use the build that wrote them')
  return number
end

-- Return entries for a number of records of a field, which is the id of a user and then the place.
local function entries_of(field, number)
  local entries = {}
  while number > 0 do
    local part = math.min(number, LARGEST_NUMBER)
    entries[#entries + 1] = field .. struct.pack('>I4', part)
    number = number - part
  end
  return table.concat(entries)
end

local function write_shard(records, merged, entries)
  redis.call('SET', records, struct.pack('>I4', merged + MARK) .. entries)
end

-- How many entries a shard has.
local function entries_in(records)
  return math.max(redis.call('STRLEN', records) - HEADER, 0) / ENTRY
end

-- The member of the set of shards that stands for the entries of a shard. Builds that know hashes only cannot read it, so
-- they release no bin in which entries wait. It comes right after the shard's own name.
local function member_of(shard) return shard .. '.entries' end

-- Append entries to a shard, and add a new shard to the set of shards that are not tallied. Return how many it has then.
local function append(untallied, bin, shard, records, entries)
  local before = entries_in(records)
  if before > 0 then
    redis.call('APPEND', records, entries)
  else
    redis.call('ZADD', untallied, bin, member_of(shard))
    write_shard(records, 0, entries)
  end
  return before + #entries / ENTRY
end
