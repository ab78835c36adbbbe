-- End the running epoch at its released bin: nothing of it is released again.
-- KEYS: state, epochs
-- ARGV: epoch, expected seq, reason
local state, epochs = unpack(KEYS)
local epoch, expected_seq, reason = unpack(ARGV)
local held = redis.call('HMGET', state, 'epoch', 'seq')
if held[1] ~= epoch or held[2] ~= expected_seq then return 'conflict' end
local ended = redis.call('HGET', epochs, epoch .. ':end_reason')
if ended then return ended == reason and 'already' or 'conflict' end
redis.call('HSET', epochs,
  epoch .. ':last_bin', redis.call('HGET', state, 'released_bin'), epoch .. ':end_reason', reason)
return 'done'
