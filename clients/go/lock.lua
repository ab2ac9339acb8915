#!lua name=redis_lock
-- LOCK.ACQUIRE, RECOVER, EXTEND, RELEASE and CHECK without the module: the same keys, values, replies and errors, for
-- one key with one holder. For Redis 5.0 and later and for Valkey. docs/PORTABLE.md lists what only the module does.
--
--   FUNCTION LOAD this file (7.0 and later)        FCALL lock_acquire 1 key margin-ms retention-ms PX 30000
--   SCRIPT LOAD it without its first line          EVALSHA sha 1 key lock_acquire margin-ms retention-ms PX 30000
--
-- The key holds <10 digits of seconds>.<6 digits of microseconds><16 digits of token>[<19 digits of ID>][ <owner>]. What
-- is in front of the token is the timestamp, now + lease + margin. Until then the lock is held. Afterwards it is expired:
-- it stays in the key for the retention, and the next holder takes it over in one write.
--
-- Tokens and IDs are text, because `..` writes only 14 digits of a number. As numbers they are below 2^53, thus exact.
-- A server compiles this file once and runs all of it at each EVALSHA, so a script stops where it has what it needs.

local script = not redis.register_function and ARGV[1] -- a script: the function that the caller wants
local is_before_7 = script and not redis.REDIS_VERSION_NUM
if is_before_7 then redis.replicate_commands() end -- replicas get the effects; the server's clock allows no other way

-- An error reply with its code word first. In those of the server, 6.2 and earlier put the place in the script there,
-- and some versions have another word, or none, for what an ACL forbids.
local function failed(why)
    if type(why) == 'string' then return { err = 'ERR ' .. why } end
    local text = why.err:gsub('^@?[%w_]+: ?%d+: %-?', ''):gsub('%s+$', '')
    if text:find('^E?R?R? ?The user executing') or text:find('^ERR ACL failure') then
        return { err = 'NOPERM ' .. text:gsub('^ERR ', '') }
    end
    return { err = text:find('^%u+ ') and text or 'ERR ' .. text }
end

-- The whole number of 1 to 20 digits that an argument is; nil if it is anything else or beyond the bounds.
local function number(text, least, most)
    local value = #text <= 20 and text:find('^%d+$') and text + 0
    return value and value >= least and value <= most and value or nil
end

-- A token as text of 16 digits; nil if the argument is none.
local function token_of(text)
    local token = number(text, 0, 9007199254740991)
    return token and (#text == 16 and text or ('%016.0f'):format(token))
end

-- Reads a value of the form above: the microseconds until its timestamp, then token, ID and owner as text. Nil if it has
-- another form. A token that leaves no room for the next gives false: nobody's, and foreign.
local function ours(value, time)
    local seconds, micros, token, rest = value:match(
        '^(%d%d%d%d%d%d%d%d%d%d)%.(%d%d%d%d%d%d)(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(.*)$')
    if not seconds then return nil end
    local id, owner
    if rest ~= '' then
        id, owner = rest:match('^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(.*)$')
        owner = owner or rest
        if owner ~= '' and (#owner > 129 or not owner:find('^ [!-~]+$')) then return nil end
    end
    if token >= '9007199254740991' then return false end
    return (seconds - time[1]) * 1000000 + micros - time[2], token, id, owner ~= '' and owner
end

-- LOCK.RELEASE and LOCK.CHECK: what becomes of a grant. Only its token reaches it.
local function settle(command, keys, args, at, time)
    if #args ~= at + 2 or #keys ~= 1 then
        return failed(keys[2] and 'several keys need the lock module'
            or "wrong number of arguments for '" .. command:lower() .. "' command")
    end
    local key, token = keys[1], args[at + 2]
    local value = redis.pcall('GET', key)
    local left, held
    if type(value) == 'string' then left, held = ours(value, time) end
    if not left or held ~= token then
        token = token_of(token)
        if not token then return failed('token is not a whole number between 0 and 9007199254740991') end
        if type(value) == 'table' then return failed(value) end
        if not left or held ~= token then return 0 end
    end
    if command == 'LOCK.CHECK' then
        local margin = number(args[at], 0, 3600000)
        if not margin then return failed('margin is not a whole number between 0 ms and 1 hour') end
        local lease = left - margin * 1000
        return lease > 0 and (lease - lease % 1000) / 1000 or 0
    end
    local reply = redis.pcall('DEL', key)
    if type(reply) == 'table' then return failed(reply) end
    return left > 0 and 1 or -1
end

if script == 'lock_release' or script == 'lock_check' then
    return settle(script == 'lock_release' and 'LOCK.RELEASE' or 'LOCK.CHECK', KEYS, ARGV, 2, redis.pcall('TIME'))
end

-- Reads a timestamp that a client of the classic pattern wrote, as the microseconds until it, rounded up: plain seconds,
-- milliseconds, microseconds or nanoseconds, which their digits tell apart. Nil: it is none.
local function classic(key, value, now)
    local whole, point, fraction = value:match('^([1-9]%d*)(%.?)(%d*)$')
    local digits, micros = whole and #value <= 128 and #whole, nil
    if digits == 10 or digits == 11 then
        if point ~= '' and fraction == '' then return nil end
        micros = whole * 1000000 + (fraction .. '000000'):sub(1, 6) + (fraction:find('[1-9]', 7) and 1 or 0)
    elseif point == '' and (digits == 13 or digits == 14) then
        micros = whole * 1000
    elseif point == '' and (digits == 16 or digits == 17) then
        micros = whole + 0
    elseif point == '' and digits == 19 and whole:sub(1, 2) < '92' then
        micros = whole:sub(1, 16) + (whole:find('[1-9]', 17) and 1 or 0)
    end
    -- A number with a native expiry is the secret of a SET NX PX client.
    return micros and redis.pcall('PTTL', key) == -1 and micros - now or nil
end

-- Reads EX, PX and the other options from `args[from]` on. Gives the lease in ms, the ID in 19 digits, the owner and
-- whether the caller wants details, or nil and the error of the first argument at fault.
local function options(command, args, from, at)
    local lease, id, owner, details, wait
    while args[from] do
        local name, value = args[from], args[from + 1]
        if name ~= 'PX' then name = name:upper() end
        local takes, acquires = command ~= 'LOCK.EXTEND', command == 'LOCK.ACQUIRE'
        local is_lease, step = name == 'PX' or name == 'EX', 2
        local needs = takes and name == 'SESSION' or acquires and (name == 'SHARED' or name == 'LIMIT')
        if not (is_lease or needs or takes and (name == 'ID' or name == 'OWNER')
                or acquires and (name == 'WAIT' or name == 'DETAILS')) then
            return nil, failed(('syntax error: argument %d is not an option of %s'):format(from - at, command))
        elseif is_lease and lease then
            return nil, failed('syntax error: EX or PX is given twice')
        elseif name == 'ID' and id or name == 'OWNER' and owner or name == 'WAIT' and wait
                or name == 'DETAILS' and details then
            return nil, failed('syntax error: ' .. name .. ' is given twice')
        elseif needs then
            return nil, failed(name .. ' needs the lock module')
        elseif name == 'DETAILS' then
            details, step = true, 1
        elseif not value then
            return nil, failed('syntax error: ' .. name .. ' has no value')
        elseif is_lease then
            local unit = name == 'PX' and 1 or 1000
            lease = number(value, 1, 315360000000 / unit)
            if not lease then return nil, failed('lease is not a whole number between 1 ms and 10 years') end
            lease = lease * unit
        elseif name == 'ID' then
            if #value > 19 or not value:find('^%d+$') then
                return nil, failed('id is not a whole number of 1 to 19 digits')
            end
            id = ('0000000000000000000'):sub(#value + 1) .. value
        elseif name == 'OWNER' then
            if #value > 128 or not value:find('^[!-~]+$') then
                return nil, failed('owner is not 1 to 128 visible ASCII characters without a space')
            end
            owner = value
        else
            wait = number(value, 0, 315360000000)
            if not wait then return nil, failed('wait is not a whole number between 0 ms and 10 years') end
            if wait > 0 then return nil, failed('WAIT needs the lock module') end
        end
        from = from + step
    end
    if not lease then return nil, failed('syntax error: EX or PX is missing') end
    return lease, id, owner, details
end

-- Writes `rest` behind a new timestamp, `ms` from now, and lets the key end when the retention is over. With `if_absent`
-- it writes only if there is no key, and gives the value of the key that is there: one call on 7.0 and later.
local function write(key, time, ms, retention, rest, if_absent)
    local seconds, micros = time[1] + (ms - ms % 1000) / 1000, time[2] + ms % 1000 * 1000
    if micros >= 1000000 then seconds, micros = seconds + 1, micros - 1000000 end
    local value = ('%d.%06d%s'):format(seconds, micros, rest)
    local nx, get = if_absent and 'NX' or nil, if_absent and 'GET' or nil
    if retention < 0 then
        if if_absent then return redis.pcall('SET', key, value, 'NX', 'GET') end
        return redis.pcall('SET', key, value)
    end
    local expiry = ('%d'):format(seconds * 1000 + (micros + -micros % 1000) / 1000 + retention)
    if if_absent then return redis.pcall('SET', key, value, 'PXAT', expiry, 'NX', 'GET') end
    local reply = redis.pcall('SET', key, value, 'PXAT', expiry)
    if is_before_7 and reply.err and reply.err:find('syntax', 1, true) then -- 6.0 and earlier have no PXAT
        reply = redis.pcall('SET', key, value)
        if not reply.err then redis.pcall('PEXPIREAT', key, expiry) end
    end
    return reply
end

-- LOCK.ACQUIRE, LOCK.RECOVER and LOCK.EXTEND: who may have the lock, and until when.
local function take(command, keys, args, at, time)
    local acquires, extends = command == 'LOCK.ACQUIRE', command == 'LOCK.EXTEND'
    local given, key = #args - at, keys[1]
    if #keys ~= 1 or given < 3 or extends and given ~= 4 then
        return failed(keys[2] and 'several keys need the lock module'
            or "wrong number of arguments for '" .. command:lower() .. "' command")
    end
    local margin = number(args[at], 0, 3600000)
    if not margin then return failed('margin is not a whole number between 0 ms and 1 hour') end
    local retention = args[at + 1] == '-1' and -1 or number(args[at + 1], 0, 315360000000)
    if not retention then return failed('retention is not a whole number between 0 ms and 10 years, or -1') end
    if not extends and #key > 4096 then return failed('key is longer than 4096 bytes') end
    local own = extends and token_of(args[at + 2])
    if extends and not own then return failed('token is not a whole number between 0 and 9007199254740991') end
    local lease, id, owner, details = options(command, args, extends and at + 3 or at + 2, at)
    if not lease then return id end

    local now = time[1] * 1000000 + time[2]
    local is_clock = now >= 1000000000000000 and now < 8835955200000000
    local no_clock = 'CLOCK the clock of the server is before 2001-09-09 or after 2250: no lock is granted'
    local behind = (id or '') .. (owner and ' ' .. owner or '')
    local token = time[1] .. ('00000' .. time[2]):sub(-6)
    local granted, ms, in_one = now, lease + margin, acquires and is_clock and not is_before_7
    -- Free: the grant is written in the same call that would find another.
    local value
    if in_one then
        value = write(key, time, ms, retention, token .. behind, true)
        if not value then return details and { now, false, false, false } or now end
    else
        value = redis.pcall('GET', key)
    end
    if type(value) == 'table' then return failed(value) end

    local left, held, held_id, held_owner
    if value then
        left, held, held_id, held_owner = ours(value, time)
        if left == nil then left = classic(key, value, now) end
    end
    local reply, rest
    if extends then -- the holder sets a new lease, also a shorter one
        if not left or left <= 0 or held ~= own then return 0 end
        rest, reply = value:sub(18), 1
    elseif left and left > 0 and acquires and id and held_id == id then -- the holder asks again
        granted = held + 0
        reply = details and { granted, false, false, false } or granted
        rest = value:sub(18)
        if not is_clock then return { err = no_clock } end
        if ms * 1000 <= left then return reply end -- its lease never becomes shorter
    elseif value and (not left or left > 0) then -- somebody else holds it, or the value is foreign
        return false
    elseif not value and not acquires then -- nothing to recover
        return false
    else -- free or expired: the caller takes it
        if held and held + 0 >= now then
            granted = held + 1
            token = ('%016.0f'):format(granted)
        end
        rest = token .. behind
        reply = granted
        if details or not acquires then
            reply = { granted, left and (-left - -left % 1000) / 1000 or false, held and held + 0 or false,
                held_owner and held_owner:sub(2) or false }
        end
    end
    if not is_clock then return { err = no_clock } end
    local written = write(key, time, ms, retention, rest)
    return written.err and failed(written) or reply
end

local runs = { acquire = take, recover = take, extend = take, release = settle, check = settle }
if script then
    local word = script:match('^lock_(%l+)$')
    if not runs[word] then return failed('the first argument is not lock_acquire, lock_recover, ...') end
    return runs[word]('LOCK.' .. word:upper(), KEYS, ARGV, 2, redis.pcall('TIME'))
end

-- A function asks once a second whether the module is loaded, and calls its command then.
local asked, is_loaded
local function register(word, command, flags)
    redis.register_function { function_name = 'lock_' .. word, flags = flags, callback = function(keys, args)
        local time = redis.pcall('TIME')
        if time[1] ~= asked then
            asked, is_loaded = time[1], pcall(redis.acl_check_cmd, 'LOCK.CHECK', '', '0')
        end
        return runs[word](command, keys, args, 1, time)
    end }
end
register('acquire', 'LOCK.ACQUIRE', {})
register('recover', 'LOCK.RECOVER', {})
register('extend', 'LOCK.EXTEND', { 'allow-oom' })
register('release', 'LOCK.RELEASE', { 'allow-oom' })
register('check', 'LOCK.CHECK', { 'no-writes' })
