-- Included by tally.lua, which says what the names hold. A user brings her first keys that are not public, up to `per_user`
-- in a window (core/counting/bringing.py), also if an epoch ends early in it: the next epoch counts what was brought in bins
-- that the ended one did not release. How many users bring a key in a bin is a cell of this bin, too.
local BROUGHT = 1099511627776 -- 2^40, beyond all cells of keys
local NO_CELL = 2147483648 -- 2^31; from here on places are bits of a hash (core/counting/unlisted.py)

local function is_unlisted(place) return per_user > 0 and place >= first_unlisted and place < NO_CELL end

local function hash_of(place, window_users)
  return string.sub(redis.call('HGET', window_users, 'key:' .. text_of[place - first_unlisted]), 1, ID_BYTES)
end

-- The hash of a place's key decides its order: its number says which of all users' keys came first.
local function rank_of(user, place, window_users)
  if not is_unlisted(place) then return redis.sha1hex(user .. packed_place(place)) end
  local hash = hash_of(place, window_users)
  local bits = struct.unpack('>I4', hash, 5)
  return redis.sha1hex(user .. packed_place(NO_CELL + bits % NO_CELL)) .. hash
end

-- Return the place of a record: where its key does not stay, that by its hash, whether the reader knew it or not.
local function settled(place, window_users)
  if not is_unlisted(place) or shown[place] then return place end
  local hash = hash_of(place, window_users)
  if struct.unpack('>I4', hash) < 2 ^ (32 - thinned) then return place end
  return NO_CELL + struct.unpack('>I4', hash, 5) % NO_CELL
end

-- Note which keys a user brings with the places that count, and add them to the numbers by place.
local function bring(user, places, window_users, added)
  local new = {}
  for _, place in ipairs(places) do
    if is_unlisted(place) and not shown[place] then new[#new + 1] = place end
  end
  if #new == 0 then return end
  local slots = 'slots:' .. user
  local packed = redis.call('HGET', window_users, slots) or ''
  local free, brought = per_user - #packed / 4, {}
  for at = 1, #packed, 4 do brought[struct.unpack('>I4', packed, at)] = true end
  local records = {}
  for _, place in ipairs(new) do
    if not brought[place] then
      records[#records + 1] = {place = place, rank = #new > 1 and rank_of(user, place, window_users) or ''}
    end
  end
  table.sort(records, by_rank)
  for i = 1, math.min(free, #records) do
    local place = records[i].place
    packed = packed .. packed_place(place)
    added[BROUGHT + place] = (added[BROUGHT + place] or 0) + 1
  end
  if free > 0 and #records > 0 then redis.call('HSET', window_users, slots, packed) end
end
