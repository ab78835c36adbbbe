-- Included by tally.lua, which says what the names hold. A user brings her first keys that are not public, up to `per_user`
-- in a window (core/counting/unlisted.py), also if an epoch ends early in it: the next epoch counts what was brought in bins
-- that the ended one did not release. How many users bring a key in a bin is a cell of this bin, too.
local BROUGHT = 1099511627776 -- 2^40, beyond all cells of keys
local NO_HASH = string.rep('\0', 12)
local place_of_hash = {}

-- Return the place in the list of a key: its number if it is listed. Others come after these, in the order of their numbers.
-- A key that does not stay, and is not public, has the place of all other events.
local function place_of(key, window_users)
  if string.sub(key, 1, 12) == NO_HASH then return (struct.unpack('>I4', key, 13)) end
  if not place_of_hash[key] then
    local number = tonumber(redis.call('HGET', window_users, 'number:' .. key) or nil)
    local stays = thinned == 0 or struct.unpack('>I4', key) < 2 ^ (32 - thinned)
    place_of_hash[key] = number and (stays or shown[number]) and first_unlisted + number or first_unlisted - 1
  end
  return place_of_hash[key]
end

-- Return the place of a record as a number, as in other streams.
local function numbered(place, window_users)
  local step = struct.unpack('>I4', place, KEY_BYTES + 1)
  return place_of(string.sub(place, 1, KEY_BYTES), window_users) * (weight + 1) + step
end

-- Note which keys a user brings with the places that count, and add them to the numbers by place.
local function bring(user, places, window_users, added)
  local new, known = {}, {}
  for _, counted in ipairs(places) do
    local key = string.sub(counted, 1, KEY_BYTES)
    local place = place_of(key, window_users)
    if place >= first_unlisted and not shown[place - first_unlisted] and not known[key] then
      known[key], new[#new + 1] = true, {place = place, rank = rank_of(user, key .. '\0\0\0\0')}
    end
  end
  if #new == 0 then return end
  local slots = 'slots:' .. user
  local packed = redis.call('HGET', window_users, slots) or ''
  local held, free, brought = #packed, per_user - #packed / 4, {}
  for at = 1, #packed, 4 do brought[struct.unpack('>I4', packed, at)] = true end
  table.sort(new, by_rank)
  for _, key in ipairs(new) do
    if free > 0 and not brought[key.place] then
      free, packed = free - 1, packed .. struct.pack('>I4', key.place)
      added[BROUGHT + key.place] = (added[BROUGHT + key.place] or 0) + 1
    end
  end
  if #packed > held then redis.call('HSET', window_users, slots, packed) end
end
