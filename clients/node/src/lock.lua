#!lua name=redis_lock
-- LOCK.ACQUIRE, RECOVER, EXTEND, RELEASE and CHECK without the module: the same keys, values, replies and errors, for
-- one key with one holder. For Redis 5.0 and later and for Valkey. docs/PORTABLE.md lists what only the module does.
--
--   FUNCTION LOAD this file (7.0 and later)        FCALL lock_acquire 1 key margin-ms retention-ms PX 30000
--   SCRIPT LOAD it without its first line          EVALSHA sha 1 key lock_acquire margin-ms retention-ms PX 30000
--
-- The key holds <10 digits of seconds>.<6 digits of microseconds><16 digits of token>[<19 digits of ID>][ <owner>].
-- The part before the token is the timestamp: now + lease + margin. Until then the lock is held. Afterwards it is
-- expired: the value stays for the retention, and the next holder takes it over in one write.
--
-- Tokens and IDs are text, because `..` writes only 14 digits of a number. As numbers they are below 2^53, thus exact.
-- EVALSHA runs all of a script at each call, so this one stops where it has what it needs.
local is_script = not redis.register_function
local is_before_7 = is_script and not redis.REDIS_VERSION_NUM

-- The whole number of 1 to 20 digits that an argument is; nil if it is anything else or beyond the bounds.
local function number(text, least, most)
    local value = #text <= 20 and text:find('^%d+$') and text + 0 -- others would pass as numbers in Lua, as 0x10
    return value and value >= least and value <= most and value or nil
end

-- Reads a token as text of 16 digits; nil if the argument is not one.
local function token_of(text)
    local token = number(text, 0, 9007199254740991)
    return token and (#text == 16 and text or ('%016.0f'):format(token))
end

-- Reads a value of the form above: the microseconds until its timestamp, then token, ID and owner as text. Nil: it has
-- another form. False: a token that leaves no room for the next, so nobody's.
local function ours(value, time)
    local seconds, micros, digits, rest = value:match('^(%d+)%.(%d%d%d%d%d%d)(%d+)(.*)$')
    if not seconds or #seconds ~= 10 then return nil end
    local id, owner
    if #digits == 35 then digits, id = digits:sub(1, 16), digits:sub(17) end
    if #digits ~= 16 then return nil end
    if rest ~= '' then
        owner = #rest <= 129 and rest:match('^ ([!-~]+)$')
        if not owner then return nil end
    end
    if digits >= '9007199254740991' then return false end
    return (seconds - time[1]) * 1000000 + micros - time[2], digits, id, owner
end

-- An error of the server, with its code word first. Versions before 7.0 put the place in the script in front, and for
-- what an ACL forbids some have another word or none.
local function refused(reply)
    local text = reply.err:gsub('^@?[%w_]+: ?%d+: %-?', ''):gsub('%s+$', '')
    if text:find('The user executing', 1, true) or text:find('ACL failure', 1, true) then
        text = 'NOPERM ' .. text:gsub('^ERR ', '')
    end
    return { err = text:find('^%u+ ') and text or 'ERR ' .. text }
end

local function misused(command, keys)
    if keys[2] then return { err = 'ERR several keys need the lock module' } end
    return { err = "ERR wrong number of arguments for '" .. command:lower() .. "' command" }
end

-- LOCK.RELEASE and LOCK.CHECK. `args[at]` is the margin, which a release ignores.
local function settle(command, key, args, at, time)
    if time.err then return refused(time) end
    local is_check, token = command == 'LOCK.CHECK', args[at + 2]
    local margin = is_check and number(args[at], 0, 3600000)
    if margin == nil then return { err = 'ERR margin is not a whole number between 0 ms and 1 hour' } end
    local value = redis.pcall('GET', key)
    local left, held
    if value and not value.err then left, held = ours(value, time) end
    if held ~= token then -- the usual argument is the token in the key, and right for that reason
        token = token_of(token)
        if not token then return { err = 'ERR token is not a whole number between 0 and 9007199254740991' } end
        if value and value.err then return refused(value) end
        if held ~= token then return 0 end
    end
    if is_check then
        local lease = left - margin * 1000
        return lease > 0 and (lease - lease % 1000) / 1000 or 0
    end
    local deleted = redis.pcall('DEL', key)
    if deleted ~= 1 then return refused(deleted) end
    return left > 0 and 1 or -1
end

local name = is_script and ARGV[1]
if is_before_7 then redis.replicate_commands() end -- else it could not write what depends on the clock
if name == 'lock_release' or name == 'lock_check' then
    local command = name == 'lock_check' and 'LOCK.CHECK' or 'LOCK.RELEASE'
    if #KEYS ~= 1 or #ARGV ~= 4 then return misused(command, KEYS) end
    return settle(command, KEYS[1], ARGV, 2, redis.pcall('TIME'))
end

-- Reads a timestamp that a client of the classic pattern wrote, in microseconds, rounded up. Seconds, milliseconds,
-- microseconds and nanoseconds differ in their digits. Nil: it is not one.
local function classic(value)
    local whole, point, fraction = value:match('^([1-9]%d*)(%.?)(%d*)$')
    local digits = whole and #value <= 128 and #whole
    if (digits == 10 or digits == 11) and (point == '' or fraction ~= '') then
        return whole * 1000000 + (fraction .. '000000'):sub(1, 6) + (fraction:find('[1-9]', 7) and 1 or 0)
    elseif point ~= '' then
        return nil
    elseif digits == 13 or digits == 14 then
        return whole * 1000
    elseif digits == 16 or digits == 17 then
        return whole + 0
    elseif digits == 19 and whole < '92' then
        return whole:sub(1, 16) + (whole:find('[1-9]', 17) and 1 or 0)
    end
end

-- LOCK.ACQUIRE, LOCK.RECOVER and LOCK.EXTEND: who may have the lock, and until when. `args[at]` is the margin.
local function take(command, key, args, at, time)
    if time.err then return refused(time) end
    local acquires, recovers, extends = command == 'LOCK.ACQUIRE', command == 'LOCK.RECOVER', command == 'LOCK.EXTEND'
    -- The defaults are not parsed: that saves a tenth of the cost.
    local margin = args[at] == '1000' and 1000 or number(args[at], 0, 3600000)
    if not margin then return { err = 'ERR margin is not a whole number between 0 ms and 1 hour' } end
    local retention = args[at + 1]
    retention = retention == '60000' and 60000 or retention == '-1' and -1 or number(retention, 0, 315360000000)
    if not retention then return { err = 'ERR retention is not -1 or a whole number between 0 ms and 10 years' } end
    if #key > 4096 and not extends then return { err = 'ERR key is longer than 4096 bytes' } end
    local own, from = extends and token_of(args[at + 2]), extends and at + 3 or at + 2
    if extends and not own then return { err = 'ERR token is not a whole number between 0 and 9007199254740991' } end
    local lease, id, owner, details, wait
    while args[from] do
        local name, value, step = args[from], args[from + 1], 2
        if name ~= 'PX' then name = name:upper() end
        local twice, is_right, fault
        if name == 'PX' or name == 'EX' then
            local unit = name == 'PX' and 1 or 1000
            twice, fault = lease and 'EX or PX', 'lease is not a whole number between 1 ms and 10 years'
            is_right = value and number(value, 1, 315360000000 / unit)
            lease = is_right and is_right * unit
        elseif name == 'ID' and not extends then
            twice, fault = id and name, 'id is not a whole number of 1 to 19 digits'
            is_right = value and #value <= 19 and value:find('^%d+$')
            id = is_right and ('0000000000000000000'):sub(#value + 1) .. value
        elseif name == 'OWNER' and not extends then
            twice, fault = owner and name, 'owner is not 1 to 128 visible ASCII characters without a space'
            is_right = value and #value <= 128 and value:find('^[!-~]+$')
            owner = value
        elseif name == 'WAIT' and acquires then
            twice, fault = wait and name, 'wait is not a whole number between 0 ms and 10 years'
            is_right = value and number(value, 0, 315360000000)
            wait = is_right
        elseif name == 'DETAILS' and acquires then
            twice, is_right, details, step = details and name, true, true, 1
        elseif name == 'SESSION' and not extends or acquires and
                (name == 'SHARED' or name == 'LIMIT' or name == 'NOTIFY' or name == 'SNOTIFY') then
            return { err = 'ERR ' .. name .. ' needs the lock module' }
        else
            return { err = ('ERR syntax error: argument %d is not an option of %s'):format(from - at, command) }
        end
        if twice then return { err = 'ERR syntax error: ' .. twice .. ' is given twice' } end
        if step == 2 and not value then return { err = 'ERR syntax error: ' .. name .. ' has no value' } end
        if not is_right then return { err = 'ERR ' .. fault } end
        if wait and wait > 0 then return { err = 'ERR WAIT needs the lock module' } end
        from = from + step
    end
    if not lease then return { err = 'ERR syntax error: EX or PX is missing' } end

    -- The content of the key: `left` microseconds until its timestamp; nil or false if it is free or foreign.
    local seconds, micros, value = time[1] + 0, time[2] + 0, redis.pcall('GET', key)
    local left, held, held_id, held_owner
    if value and value.err then return refused(value) end
    if value then
        left, held, held_id, held_owner = ours(value, time)
        if left == nil and not extends then
            left = classic(value)
            local ends_in = left and redis.pcall('PTTL', key)
            if type(ends_in) == 'table' then return refused(ends_in) end
            -- A number with a native expiry is the secret of a SET NX PX client.
            left = ends_in == -1 and left - (seconds * 1000000 + micros)
        end
    end

    -- The decision, and the details of the reply.
    local ms, is_clock = lease + margin, seconds >= 1000000000 and seconds < 8835955200
    local grant, reply
    if extends then
        if held ~= own or left <= 0 then return 0 end
        grant, reply = value:sub(18), 1
    elseif left and left > 0 then
        if not acquires or not id or held_id ~= id then return false end
        -- The attempt that holds the lock asks again: its lease never becomes shorter.
        grant, reply = value:sub(18), held + 0
        if details then reply = { reply, false, false, false } end
        if is_clock and ms * 1000 <= left then return reply end
    elseif left or acquires and not value then
        reply, grant = seconds * 1000000 + micros, time[1] .. time[2]
        if #time[2] < 6 then grant = time[1] .. ('00000' .. time[2]):sub(-6) end
        if held and held + 0 >= reply then
            reply = held + 1
            grant = ('%016.0f'):format(reply)
        end
        if id then grant = grant .. id end
        if owner then grant = grant .. ' ' .. owner end
        if details or recovers then
            local overdue = left and (-left - -left % 1000) / 1000
            reply = { reply, overdue or false, held and held + 0 or false, held_owner or false }
        end
    else
        return false
    end
    if not is_clock then
        return { err = 'CLOCK the clock of the server is before 2001-09-09 or after 2250: no lock is granted' }
    end

    -- The write, and when the key ends by itself, rounded up.
    seconds, micros = seconds + (ms - ms % 1000) / 1000, micros + ms % 1000 * 1000
    if micros >= 1000000 then seconds, micros = seconds + 1, micros - 1000000 end
    local new = ('%d.%06d%s'):format(seconds, micros, grant)
    if retention < 0 then
        local written = redis.pcall('SET', key, new)
        return written.err and refused(written) or reply
    end
    local expiry = ('%d'):format(seconds * 1000 + (micros + -micros % 1000) / 1000 + retention)
    local written = redis.pcall('SET', key, new, 'PXAT', expiry)
    if is_before_7 and written.err and written.err:find('syntax', 1, true) then -- before 6.2 there is no PXAT
        written = redis.pcall('SET', key, new)
        if not written.err then redis.pcall('PEXPIREAT', key, expiry) end
    end
    return written.err and refused(written) or reply
end

if is_script then
    local command = name == 'lock_acquire' and 'LOCK.ACQUIRE' or name == 'lock_extend' and 'LOCK.EXTEND'
        or name == 'lock_recover' and 'LOCK.RECOVER'
    if not command then return { err = 'ERR function is not lock_acquire, _recover, _extend, _release or _check' } end
    if #KEYS ~= 1 or #ARGV < 5 or name == 'lock_extend' and #ARGV ~= 6 then return misused(command, KEYS) end
    return take(command, KEYS[1], ARGV, 2, redis.pcall('TIME'))
end

-- A function asks once a second for the module; where that is loaded, its command decides.
local asked, is_loaded
local function register(name, command, run, least, most, flags)
    redis.register_function { function_name = name, flags = flags, callback = function(keys, args)
        if #keys ~= 1 or #args < least or #args > most then return misused(command, keys) end
        local time = redis.pcall('TIME')
        if time[1] ~= asked then asked, is_loaded = time[1], pcall(redis.acl_check_cmd, 'LOCK.CHECK', '', '0') end
        if not is_loaded then return run(command, keys[1], args, 1, time) end
        -- No valid command has more than 40 arguments, so the first invalid one is among these.
        local reply = redis.pcall(command, keys[1], unpack(args, 3, math.min(#args, 40)))
        return type(reply) == 'table' and reply.err and refused(reply) or reply
    end }
end
register('lock_acquire', 'LOCK.ACQUIRE', take, 4, 1e9, {})
register('lock_recover', 'LOCK.RECOVER', take, 4, 1e9, {})
register('lock_extend', 'LOCK.EXTEND', take, 5, 5, { 'allow-oom' })
register('lock_release', 'LOCK.RELEASE', settle, 3, 3, { 'allow-oom' })
register('lock_check', 'LOCK.CHECK', settle, 3, 3, { 'no-writes' })
