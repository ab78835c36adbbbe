-- Begin to put back a stream, as history. Its rows follow (put_back.lua), and then it becomes visible.
-- KEYS: state, strategy, epochs, chain
-- ARGV: text of the history, its stored format, hash of a history, its last seq, its last bin, the hash of its last row,
--       its last epoch, the record of that epoch
local state, strategy, epochs, chain = unpack(KEYS)
local text, format, history_hash, seq, last_bin, head, epoch, record = unpack(ARGV)
local held = redis.call('HMGET', state, 'strategy_hash', 'head')
if held[1] then return held[1] == history_hash and held[2] == head and 'already' or 'conflict' end
if redis.call('EXISTS', strategy, epochs, chain) > 0 then return 'conflict' end
redis.call('SET', strategy, text)
redis.call('HSET', epochs, 'format', format, epoch, record)
redis.call('HSET', state, 'strategy_hash', history_hash, 'epoch', epoch, 'seq', seq, 'head', head,
  'released_bin', last_bin, 'sealed_bin', last_bin, 'last_bin', last_bin, 'counter', '', 'noise', '')
return 'done'
