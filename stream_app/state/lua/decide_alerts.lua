-- KEYS: states, decided, outbox, the stream's transitions. ARGV: stream, decision before ('' for none), seq,
-- how many are kept in the outbox and for the stream, number of transitions, number of those for readers, the
-- transitions, the last of them as readers see them, then rule and state in turns.
-- Stores a watcher's decisions, or changes nothing if another watcher was first.
local last = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if last ~= ARGV[2] then
  return 'moved'
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
local shown = 8 + tonumber(ARGV[6])
local states = shown + tonumber(ARGV[7])
for i = 8, shown - 1 do
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[4], '*', 'transition', ARGV[i])
end
-- Ids are set here: an id made by the server would reveal when the decision was made.
local newest = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
local number = newest and tonumber(string.match(newest[1], '^%d+')) or 0
for i = shown, states - 1 do
  number = number + 1
  redis.call('XADD', KEYS[4], 'MAXLEN', ARGV[5], string.format('%d-0', number), 'transition', ARGV[i])
end
for i = states, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
return 'done'
