-- Included by scripts that count users. Under another key a user of a window would have another hash, and count anew.

local function bytes_of(digits)
  return (string.gsub(digits, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end))
end

local function digits_of(bytes)
  return (string.gsub(bytes, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

-- Return the mark of a window's key as the state notes it (`user_keys`: marks in hexadecimal digits, and between two of them
-- the window after which the second one holds), or false.
local function noted_user_key(window, noted)
  if not noted then return false end
  local digits = string.match(noted, '^%x+')
  for after, later in string.gmatch(noted, ' (%-?%d+) (%x+)') do
    if tonumber(window) > tonumber(after) then digits = later end
  end
  return bytes_of(digits)
end

-- Return the mark of the key that hashes the users of a window: as they have counted, else as noted. False: any key may.
local function user_key_of(users, window, noted)
  return redis.call('HGET', users, 'key mark') or noted_user_key(window, noted)
end
