-- KEYS: states, decided, outbox. ARGV: stream, decision before ('' for none), seq, kept transitions,
-- number of transitions, the transitions, then rule and state in turns.
-- Stores what a watcher decided, or changes nothing where another was first.
local last = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if last ~= ARGV[2] then
  return 'moved'
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
local transitions = tonumber(ARGV[5])
for i = 6, 5 + transitions do
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[4], '*', 'transition', ARGV[i])
end
for i = 6 + transitions, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
return 'done'
