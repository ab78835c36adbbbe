-- Make a stream history: its last epoch ends with the last visible bin, and no worker's write is accepted any more.
-- What is secret leaves the state here, and its other keys are deleted afterwards (Retirement in history.py).
-- KEYS: state, strategy, epochs, visible
-- ARGV: strategy hash, epoch, visible seq, last visible bin, hash of a history, text of the history, its stored format
local state, strategy, epochs, visible = unpack(KEYS)
local strategy_hash, epoch, seq, last_bin, history_hash, text, format = unpack(ARGV)
local held = redis.call('HMGET', state, 'strategy_hash', 'epoch')
if held[1] == history_hash then return 'already' end
if held[1] ~= strategy_hash then return 'strategy' end
if held[2] ~= epoch or (redis.call('GET', visible) or '0') ~= seq then return 'conflict' end
local ended = redis.call('HGET', epochs, epoch .. ':last_bin')
if not ended or tonumber(ended) > tonumber(last_bin) then
  redis.call('HSET', epochs, epoch .. ':last_bin', last_bin, epoch .. ':end_reason', 'retired')
end
if tonumber(redis.call('HGET', epochs, 'format') or '1') < tonumber(format) then
  redis.call('HSET', epochs, 'format', format)
end
redis.call('HSET', state, 'strategy_hash', history_hash, 'counter', '', 'noise', '')
redis.call('SET', strategy, text)
return 'done'
