-- Open an epoch after all others of the stream; the epoch before it ends at its released bin.
-- KEYS: state, strategy, epochs, visible, chain, open_bins, noise, open_windows, untallied, then the cells of each bin to
--       forget, the users of each window to forget, the records of each shard of users to forget, then the tiles that
--       hold what is released but not visible
-- ARGV: strategy, strategy hash, epoch, record, first bin, last bin, first seq, head, nonce of the epoch's noise
--       (may be empty), number of its pages, the counter that it begins with if the chain goes on from its own
--       head, seq, head and visible seq that the caller saw, the strategies in whose place these come if the settings change
--       (may be empty), the format that the stream needs (may be empty), the keys that earlier epochs found as lines of JSON
--       (may be empty), numbers of bins, windows and shards to forget, these bins, these
--       windows (each named by its last bin), these shards, then the visible length of each tile
-- Replies: 'again' if the state has changed since the caller read it
local state, strategy, epochs, visible, chain, open_bins, noise, open_windows, untallied = unpack(KEYS, 1, 9)
local text, strategy_hash, epoch, record, first_bin, last_bin, first_seq, head = unpack(ARGV, 1, 8)
local nonce, pages, carried, seen_seq, seen_head, seen_visible, replaced, format = unpack(ARGV, 9, 16)
local listed, bins_to_forget, windows_to_forget, shards_to_forget = unpack(ARGV, 17, 20)
local GIVEN_KEYS, GIVEN_ARGUMENTS = 9, 20
local counter = ''
bins_to_forget, windows_to_forget = tonumber(bins_to_forget), tonumber(windows_to_forget)
shards_to_forget = tonumber(shards_to_forget)
local shards_at = bins_to_forget + windows_to_forget

local function last_bin_of(number, known)
  return tonumber(redis.call('HGET', epochs, number .. ':last_bin') or known.first_bin + known.bins - 1)
end

local function end_epoch(number, bin, reason)
  redis.call('HSET', epochs, number .. ':last_bin', bin, number .. ':end_reason', reason)
end

-- The witness holds other rows than the rows here that no reader has seen: these rows must stay unseen.
-- Discard the rows after `seq`. Other rows with their numbers come from the witness, and Redis refuses used numbers:
-- from version 7 on it cannot set the last number back either, so the rows that stay move to a new stream.
local function keep_rows(seq)
  local last, from, kept = string.format('%.0f-0', seq), '-', chain .. ':kept'
  if #redis.call('XRANGE', chain, '(' .. last, '+', 'COUNT', 1) == 0 then
    if redis.call('EXISTS', chain) == 1 then redis.call('XSETID', chain, last) end
    return
  end
  redis.call('UNLINK', kept)
  repeat
    local rows = redis.call('XRANGE', chain, from, last, 'COUNT', 1000)
    for _, row in ipairs(rows) do
      redis.call('XADD', kept, row[1], unpack(row[2]))
      from = '(' .. row[1]
    end
  until #rows < 1000
  redis.call('UNLINK', chain)
  if redis.call('EXISTS', kept) == 1 then redis.call('RENAME', kept, chain) end
end

-- Discard the keys that rows after a bin have found: each line of JSON begins with the bin of a row.
local function keep_found(number, last_visible)
  local kept = ''
  for line in string.gmatch(redis.call('HGET', epochs, number .. ':found') or '', '[^\n]+') do
    if cjson.decode(line)[1] <= last_visible then kept = kept .. line .. '\n' end
  end
  if kept ~= '' then redis.call('HSET', epochs, number .. ':found', kept)
  else redis.call('HDEL', epochs, number .. ':found') end
end

local function discard_invisible()
  for i = shards_at + shards_to_forget + 1, #KEYS - GIVEN_KEYS do
    local tile, length = KEYS[GIVEN_KEYS + i], tonumber(ARGV[GIVEN_ARGUMENTS + i])
    if length == 0 then
      redis.call('UNLINK', tile)
    elseif redis.call('STRLEN', tile) > length then
      redis.call('SET', tile, redis.call('GETRANGE', tile, 0, length - 1))
    end
  end
  local seq = tonumber(redis.call('GET', visible) or '0')
  keep_rows(seq)
  for _, number in ipairs(redis.call('HKEYS', epochs)) do
    if string.match(number, '^%d+$') then
      local known = cjson.decode(redis.call('HGET', epochs, number))
      local last_visible = known.first_bin + math.max(seq - known.first_seq, -1)
      keep_found(number, last_visible)
      if last_visible < last_bin_of(number, known) then
        end_epoch(number, string.format('%.0f', last_visible), 'the chain went on elsewhere')
      end
    end
  end
end

-- Incomplete noise was discarded by another worker: an epoch that began with it could not continue.
local function noise_is_stored()
  for page = 0, tonumber(pages) - 1 do
    if redis.call('HEXISTS', noise, nonce .. ':' .. page) == 0 then return false end
  end
  return true
end

-- Return the members of a set before the epoch's first bin, or nothing if the caller saw other members.
local function seen_before(set, skipped, number)
  local found = redis.call('ZRANGEBYSCORE', set, '-inf', '(' .. first_bin)
  if #found ~= number then return nil end
  for i, name in ipairs(found) do
    if name ~= ARGV[GIVEN_ARGUMENTS + skipped + i] then return nil end
  end
  return found
end

local function forget(set, skipped, names)
  for i, name in ipairs(names) do
    redis.call('UNLINK', KEYS[GIVEN_KEYS + skipped + i])
    redis.call('ZREM', set, name)
  end
end

local current = redis.call('HGET', state, 'epoch')
local sealed_bin = tonumber(first_bin) - 1
if current then
  local held = redis.call('HMGET', state,
    'strategy_hash', 'seq', 'head', 'released_bin', 'sealed_bin', 'opening_head', 'noise')
  local stored = redis.call('GET', strategy)
  local changes = replaced ~= '' and stored == replaced
  if not changes and (stored ~= text or held[1] ~= strategy_hash) then return 'strategy' end
  if current == epoch then
    local same = redis.call('HGET', epochs, epoch) == record and held[6] == head and (held[7] or '') == nonce
    return same and 'already' or 'conflict'
  end
  if tonumber(epoch) < tonumber(current)
    or tonumber(first_bin) <= tonumber(held[4])
    or tonumber(first_seq) <= tonumber(held[2])
    or not noise_is_stored() then
    return 'conflict'
  end
  local bins = seen_before(open_bins, 0, bins_to_forget)
  local windows = seen_before(open_windows, bins_to_forget, windows_to_forget)
  local shards = seen_before(untallied, shards_at, shards_to_forget)
  if not bins or not windows or not shards then return 'again' end
  if held[2] ~= seen_seq or held[3] ~= seen_head or (redis.call('GET', visible) or '0') ~= seen_visible then
    return 'again'
  end

  if tonumber(first_seq) ~= tonumber(held[2]) + 1 or head ~= held[3] then
    discard_invisible()
  else
    counter = carried
    if redis.call('HEXISTS', epochs, current .. ':end_reason') == 0 then
      end_epoch(current, held[4], 'a later epoch was opened')
    end
  end
  forget(open_bins, 0, bins)
  forget(open_windows, bins_to_forget, windows)
  forget(untallied, shards_at, shards)
  sealed_bin = math.max(sealed_bin, tonumber(held[5]))
elseif not noise_is_stored() then
  return 'conflict'
end

redis.call('SET', strategy, text)
local held_format = redis.call('HGET', epochs, 'format') or '1'
if format ~= '' and tonumber(format) > tonumber(held_format) then redis.call('HSET', epochs, 'format', format) end
redis.call('HDEL', state, 'stopped')
redis.call('HSET', epochs, epoch, record)
if listed ~= '' then redis.call('HSET', epochs, epoch .. ':found', listed) end
redis.call('HSET', state,
  'strategy_hash', strategy_hash, 'epoch', epoch, 'last_bin', last_bin, 'opening_head', head, 'head', head,
  'seq', string.format('%.0f', tonumber(first_seq) - 1),
  'released_bin', string.format('%.0f', tonumber(first_bin) - 1),
  'sealed_bin', string.format('%.0f', sealed_bin),
  'counter', counter, 'noise', nonce)
return 'done'
