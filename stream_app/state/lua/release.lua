-- Release sealed bins: write rows, tiles and the counter's state, and delete the exact counts.
-- Compares the head of the chain, so that neither a retry nor a second worker releases a bin twice.
-- KEYS: state, epochs, chain, open_bins, open_windows, untallied, then the cells of each bin, the users of the window that ends
--       with each bin (there may be none), then the tiles, then the cells of the earlier bins
-- ARGV: strategy hash, epoch, expected seq, expected head, first bin, last bin, new head, counter, the keys that the last
--       bin finds as a line of JSON (may be empty), packed cells that are public (empty: none but these is kept), how many
--       earlier bins have counts of keys that these rows name, packed cells of these keys,
--       a row for each bin, then for each tile: its length before, bytes to append, whether it is then full
local state, epochs, chain, open_bins, open_windows, untallied = unpack(KEYS, 1, 6)
local strategy_hash, epoch, expected_seq, expected_head = unpack(ARGV, 1, 4)
local first_bin, last_bin, head, counter, found, shown_cells = unpack(ARGV, 5, 10)
local past_bins, past_cells = tonumber(ARGV[11]), cmsgpack.unpack(ARGV[12])
local GIVEN_KEYS, GIVEN_ARGUMENTS = 6, 12
local bins = tonumber(last_bin) - tonumber(first_bin) + 1
local tiles = #KEYS - GIVEN_KEYS - 2 * bins - past_bins
local seq = string.format('%.0f', tonumber(expected_seq) + bins)

local held = redis.call('HMGET', state,
  'strategy_hash', 'epoch', 'seq', 'head', 'released_bin', 'sealed_bin', 'last_bin')
if not held[1] then return 'conflict' end
if held[1] ~= strategy_hash then return 'strategy' end
if held[3] == seq and held[4] == head then return 'already' end
if held[2] ~= epoch or redis.call('HEXISTS', epochs, epoch .. ':end_reason') == 1
  or held[3] ~= expected_seq or held[4] ~= expected_head
  or tonumber(held[5]) + 1 ~= tonumber(first_bin) or tonumber(last_bin) > tonumber(held[7]) then
  return 'conflict'
end
if tonumber(last_bin) > tonumber(held[6]) then return 'not_sealed' end
if redis.call('ZCOUNT', untallied, '-inf', last_bin) > 0 then return 'not_tallied' end

local function tile(i)
  local argument = GIVEN_ARGUMENTS + bins + 3 * i - 2
  return KEYS[GIVEN_KEYS + 2 * bins + i], tonumber(ARGV[argument]), ARGV[argument + 1], ARGV[argument + 2]
end
for i = 1, tiles do
  local key, length = tile(i)
  if redis.call('STRLEN', key) ~= length then return 'conflict' end
end

local shown = shown_cells ~= '' and cmsgpack.unpack(shown_cells) or {}
local function delete_cells(counts, cells)
  for start = 1, #cells, 1000 do redis.call('HDEL', counts, unpack(cells, start, math.min(start + 999, #cells))) end
end

for i = 1, bins do
  redis.call('XADD', chain, string.format('%.0f-0', tonumber(expected_seq) + i), 'row', ARGV[GIVEN_ARGUMENTS + i])
  redis.call('UNLINK', KEYS[GIVEN_KEYS + bins + i])
  -- Counts of keys that are not public stay until the epoch ends: a key's past joins when it is found.
  if shown_cells == '' then redis.call('UNLINK', KEYS[GIVEN_KEYS + i]) else delete_cells(KEYS[GIVEN_KEYS + i], shown) end
end
-- These rows hold the past of the keys that they name.
for i = #KEYS - past_bins + 1, #KEYS do delete_cells(KEYS[i], past_cells) end
redis.call('ZREMRANGEBYSCORE', open_windows, first_bin, last_bin)
for i = 1, tiles do
  local key, _, data, fills = tile(i)
  redis.call('APPEND', key, data)
  -- Redis gives an appended string up to twice its size in memory; setting it anew frees the spare room.
  if fills == '1' then redis.call('SET', key, redis.call('GET', key)) end
end
if shown_cells == '' then redis.call('ZREMRANGEBYSCORE', open_bins, first_bin, last_bin) end
if found ~= '' then
  redis.call('HSET', epochs, epoch .. ':found', (redis.call('HGET', epochs, epoch .. ':found') or '') .. found .. '\n')
end
redis.call('HSET', state, 'seq', seq, 'head', head, 'released_bin', last_bin, 'counter', counter)
if last_bin == held[7] then
  redis.call('HSET', epochs, epoch .. ':last_bin', last_bin, epoch .. ':end_reason', 'complete')
end
return 'done'
