-- End the running epoch at its released bin: nothing of it is released again.
-- KEYS: state, epochs
-- ARGV: epoch, reason
local state, epochs = unpack(KEYS)
local epoch, reason = unpack(ARGV)
if redis.call('HGET', state, 'epoch') ~= epoch then return 'conflict' end
local ended = redis.call('HGET', epochs, epoch .. ':end_reason')
if ended then return ended == reason and 'already' or 'conflict' end
redis.call('HSET', epochs,
  epoch .. ':last_bin', redis.call('HGET', state, 'released_bin'), epoch .. ':end_reason', reason)
return 'done'
