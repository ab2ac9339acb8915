#!lua name=redis_lock
-- LOCK.ACQUIRE, RECOVER, EXTEND, RELEASE, CHECK, CANCEL, INFO, MACQUIRE, MEXTEND and MRELEASE without the module: the
-- same keys, values, replies and errors, on Redis 5.0 and later and on Valkey. The calls are in docs/PORTABLE.md.
--
--   FUNCTION LOAD this file (7.0 and later)        FCALL lock_acquire 1 key margin-ms retention-ms PX 30000
--   SCRIPT LOAD it without its first line          EVALSHA sha 1 key lock_acquire margin-ms retention-ms PX 30000
--
-- The key holds <10 digits of seconds>.<6 digits of microseconds><16 digits of token>[<19 digits of ID>][ <owner>]. The
-- part before the token is the timestamp: now + lease + margin. Until then the lock is held. Then it has expired: the
-- value stays for the retention, and the next holder replaces it in one write. Several holders form a sorted set: the
-- score is the timestamp, the member is the rest.
--
-- A second key is the lock's queue, in which attempts wait in order. Part one of this file is the fast path: a lock
-- with one holder and no waiters. Part two is everything else.
--
-- Tokens and IDs are text, because `..` writes only 14 digits of a number. As numbers they are below 2^53, so they are
-- exact. EVALSHA runs the whole script on each call, so this script returns as soon as it can.

-- Part one: a lock with one holder and no waiters ---------------------------------------------------------------------

local is_script = not redis.register_function
local is_before_7 = is_script and not redis.REDIS_VERSION_NUM

-- Reads an argument as a whole number of 1 to 20 digits; nil if it is anything else or out of bounds.
local function number(text, least, most)
    local value = #text <= 20 and text:find('^%d+$') and text + 0 -- Lua would accept others, such as 0x10
    return value and value >= least and value <= most and value or nil
end

-- Reads a token as text of 16 digits; nil if the argument is not one.
local function token_of(text)
    local token = number(text, 0, 9007199254740991)
    return token and (#text == 16 and text or ('%016.0f'):format(token))
end

-- Reads a value of the form above: the microseconds until its timestamp, then token, ID and owner as text. Nil: it has
-- a different form. False: no grant has its token, so it is nobody's.
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

-- A server error, with its error code first. Versions before 7.0 prefix it with the position in the script, and some
-- have a different error code, or none, for an ACL refusal.
local function refused(reply)
    local text = reply.err:gsub('^@?[%w_]+: ?%d+: %-?', ''):gsub('%s+$', '')
    if text:find('The user executing', 1, true) or text:find('ACL failure', 1, true) then
        text = 'NOPERM ' .. text:gsub('^ERR ', '')
    end
    return { err = text:find('^%u+ ') and text or 'ERR ' .. text }
end

local BAD_MARGIN = 'ERR margin is not a whole number between 0 ms and 1 hour'
local BAD_TOKEN = 'ERR token is not a whole number between 0 and 9007199254740991'

-- Why these keys are wrong for a command on one lock; nil if they are right. The queue shares its lock's slot.
local function misused(command, keys)
    local key, queue = keys[1], keys[2]
    if not key then return { err = "ERR wrong number of arguments for '" .. command:lower() .. "' command" } end
    if keys[3] then return { err = 'ERR this function takes a lock and its queue; lock_acquire_all takes several' } end
    local from = queue and key:find('[{}]')
    if not from then
        if not queue or queue == key .. ':queue:{' .. key .. '}' then return nil end
    elseif key:find('^[^{]*{[^}]+}') then
        if queue == key .. ':queue' then return nil end
    else
        return { err = 'ERR key has a brace but no hash tag, so it has no queue' }
    end
    return { err = 'ERR queue is not the key followed by :queue:{key}, or :queue where the key has a hash tag' }
end

-- LOCK.RELEASE and LOCK.CHECK. `args[at]` is the margin, which a release ignores. Nil: part two decides. The second
-- result is then the number of members in the queue, if it was read.
local function settle(command, keys, args, at, time)
    if time.err then return refused(time) end
    local is_check, token = command == 'LOCK.CHECK', args[at + 2]
    local margin = is_check and number(args[at], 0, 3600000)
    if margin == nil then return { err = BAD_MARGIN } end
    local queued = keys[2] and not is_check and redis.pcall('ZCARD', keys[2])
    if queued and queued ~= 0 then return nil, queued end
    local value = redis.pcall('GET', keys[1])
    local left, held
    if value and not value.err then left, held = ours(value, time) end
    if held ~= token then -- usually the argument is the token in the key, and thus valid
        token = token_of(token)
        if not token then return { err = BAD_TOKEN } end
        if value and value.err then
            if keys[2] then return nil end
            return refused(value)
        end
        if held ~= token then return 0 end
    end
    if is_check then
        local lease = left - margin * 1000
        return lease > 0 and (lease - lease % 1000) / 1000 or 0
    end
    local deleted = redis.pcall('DEL', keys[1])
    if deleted ~= 1 then return refused(deleted) end
    return left > 0 and 1 or -1
end

local name = is_script and ARGV[1]
if is_before_7 then redis.replicate_commands() end -- otherwise it could not write values that depend on the clock
local time = is_script and redis.pcall('TIME')
local queued -- the number of members in the queue, once known
if name == 'lock_release' or name == 'lock_check' then
    local command = name == 'lock_check' and 'LOCK.CHECK' or 'LOCK.RELEASE'
    local fault = misused(command, #ARGV == 4 and KEYS or {})
    if fault then return fault end
    local reply
    reply, queued = settle(command, KEYS, ARGV, 2, time)
    if reply ~= nil then return reply end
end

-- Reads a timestamp that a client of the classic pattern wrote, in microseconds, rounded up. Seconds, milliseconds,
-- microseconds and nanoseconds differ in their number of digits. Nil: it is not a timestamp.
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

-- What a string means: like `ours`, with classic clients' timestamps; nil or false if foreign; the fifth is an error.
local function content(key, value, time)
    local left, token, id, owner = ours(value, time)
    if left ~= nil then return left, token, id, owner end
    local at = classic(value)
    local ends_in = at and redis.pcall('PTTL', key)
    if type(ends_in) == 'table' then return nil, nil, nil, nil, refused(ends_in) end
    -- A number with a native expiry is a SET NX PX client's secret.
    return ends_in == -1 and at - (time[1] * 1000000 + time[2])
end

-- Reads the options from `args[from]` on; `at` is where the command's own begin. The first result is an error. The
-- values are locals, not a table, to keep the fast path fast.
local function parse(command, args, at, from, has_queue)
    local acquires, several, cancels = command == 'LOCK.ACQUIRE', command == 'LOCK.MACQUIRE', command == 'LOCK.CANCEL'
    local extends = command == 'LOCK.EXTEND' or command == 'LOCK.MEXTEND'
    local lease, id, owner, details, wait, share, most, notify, channel
    while args[from] do
        local name, value, step = args[from], args[from + 1], 2
        if name ~= 'PX' then name = name:upper() end
        local twice, is_right, fault
        if (name == 'PX' or name == 'EX') and not cancels then
            local unit = name == 'PX' and 1 or 1000
            twice, fault = lease and 'EX or PX', 'lease is not a whole number between 1 ms and 10 years'
            is_right = value and number(value, 1, 315360000000 / unit)
            lease = is_right and is_right * unit
        elseif name == 'ID' and not extends then
            twice, fault = id and name, 'id is not a whole number of 1 to 19 digits'
            is_right = value and #value <= 19 and value:find('^%d+$')
            id = is_right and ('0000000000000000000'):sub(#value + 1) .. value
        elseif name == 'OWNER' and not extends and not cancels then
            twice, fault = owner and name, 'owner is not 1 to 128 visible ASCII characters without a space'
            is_right = value and #value <= 128 and value:find('^[!-~]+$')
            owner = value
        elseif name == 'WAIT' and (acquires or several) then
            twice, fault = wait and name, 'wait is not a whole number between 0 ms and 10 years'
            is_right = value and number(value, 0, 315360000000)
            wait = is_right
        elseif name == 'DETAILS' and acquires then
            twice, is_right, details, step = details and name, true, true, 1
        elseif (name == 'NOTIFY' or name == 'SNOTIFY') and has_queue and (acquires or cancels) then
            if notify and notify ~= name then
                return { err = 'ERR syntax error: NOTIFY and SNOTIFY exclude each other' }
            end
            twice, fault = notify, 'channel is not 1 to 256 bytes long'
            is_right = value and #value >= 1 and #value <= 256
            notify, channel = name, value
        elseif (name == 'SHARED' or name == 'LIMIT') and has_queue and (acquires or cancels) then
            if share and share ~= name then
                return { err = 'ERR syntax error: SHARED and LIMIT exclude each other' }
            end
            twice, fault = share, 'limit is not a whole number between 1 and 4096'
            is_right = name == 'SHARED' and 4096 or value and number(value, 1, 4096)
            if name == 'SHARED' then step = 1 end
            share, most = name, is_right
        elseif name == 'SESSION' and not (extends or cancels) or name == 'RESULT' and acquires or (acquires or several)
                and (name == 'SHARED' or name == 'LIMIT' or name == 'NOTIFY' or name == 'SNOTIFY') then
            local is_alone = name == 'SESSION' or name == 'RESULT'
            local also = is_alone and '' or several and ', or one key' or ', or the queue as a second key'
            return { err = 'ERR ' .. name .. ' needs the lock module' .. also }
        else
            return { err = ('ERR syntax error: argument %d is not an option of %s'):format(from - at, command) }
        end
        if twice then return { err = 'ERR syntax error: ' .. twice .. ' is given twice' } end
        if step == 2 and not value then return { err = 'ERR syntax error: ' .. name .. ' has no value' } end
        if not is_right then return { err = 'ERR ' .. fault } end
        from = from + step
    end
    if not lease and not cancels then return { err = 'ERR syntax error: EX or PX is missing' } end
    if notify then
        local missing = not wait and not cancels and 'WAIT' or not id and 'ID'
        if missing then return { err = 'ERR syntax error: ' .. notify .. ' needs ' .. missing } end
        if wait and wait > 3600000 then
            return { err = 'ERR wait is longer than 1 hour, the maximum with NOTIFY or SNOTIFY' }
        end
    elseif wait and wait > 0 then
        return { err = 'ERR WAIT needs the lock module' .. (has_queue and acquires and ', or NOTIFY' or '') }
    end
    return nil, lease, id, owner, details, wait, share, most, notify, channel
end

-- Reads margin and retention; the third result is an error. Not parsing the defaults saves a tenth of the cost.
local function terms(args, at)
    local margin = args[at] == '1000' and 1000 or number(args[at], 0, 3600000)
    if not margin then return nil, nil, { err = BAD_MARGIN } end
    local retention = args[at + 1]
    retention = retention == '60000' and 60000 or retention == '-1' and -1 or number(retention, 0, 315360000000)
    if not retention then
        return nil, nil, { err = 'ERR retention is not -1 or a whole number between 0 ms and 10 years' }
    end
    return margin, retention
end

-- The timestamp `ms` from now as text, and when the key expires, rounded up; nil if it never does.
local function timestamp(time, ms, retention)
    local seconds, micros = time[1] + (ms - ms % 1000) / 1000, time[2] + ms % 1000 * 1000
    if micros >= 1000000 then seconds, micros = seconds + 1, micros - 1000000 end
    local expiry = retention >= 0 and ('%d'):format(seconds * 1000 + (micros + -micros % 1000) / 1000 + retention)
    return ('%d.%06d'):format(seconds, micros), expiry or nil
end

-- Writes a lock with one holder; `record` is the part after the timestamp. Returns an error, or nil.
local function write(key, record, time, ms, retention)
    local at, expiry = timestamp(time, ms, retention)
    local value = at .. record
    local written = expiry and redis.pcall('SET', key, value, 'PXAT', expiry) or redis.pcall('SET', key, value)
    if is_before_7 and written.err and written.err:find('syntax', 1, true) then -- PXAT needs 6.2
        written = redis.pcall('SET', key, value)
        if not written.err then redis.pcall('PEXPIREAT', key, expiry) end
    end
    return written.err and refused(written)
end

local function is_clock(time) return #time[1] == 10 and time[1] < '8835955200' end
local NO_CLOCK = "CLOCK the server's clock is before 2001-09-09 or after 2250: no lock is granted"

-- LOCK.ACQUIRE, LOCK.RECOVER and LOCK.EXTEND: who may have the lock, and until when. Nil: part two decides, as above.
local function take(command, keys, args, at, time)
    if time.err then return refused(time) end
    local key, queue = keys[1], keys[2]
    local acquires, recovers, extends = command == 'LOCK.ACQUIRE', command == 'LOCK.RECOVER', command == 'LOCK.EXTEND'
    local margin, retention, fault = terms(args, at)
    if fault then return fault end
    if #key > 4096 and not extends then return { err = 'ERR key is longer than 4096 bytes' } end
    local own = extends and token_of(args[at + 2])
    if extends and not own then return { err = BAD_TOKEN } end
    local wrong, lease, id, owner, details, _, share, _, _, channel =
        parse(command, args, at, extends and at + 3 or at + 2, queue)
    if wrong then return wrong end
    local queued = queue and not share and not extends and redis.pcall('ZCARD', queue)
    if queue and share or queued and queued ~= 0 then return nil, queued or nil end

    -- The content of the key: `left` microseconds until its timestamp; nil or false if the lock is free or foreign.
    local value = redis.pcall('GET', key)
    local left, held, held_id, held_owner
    if value and value.err then
        if queue then return nil end
        return refused(value)
    elseif value and extends then
        left, held = ours(value, time)
    elseif value then
        left, held, held_id, held_owner, fault = content(key, value, time)
        if fault then return fault end
    end

    -- The decision, and the details of the reply.
    local ms, record, reply = lease + margin, nil, nil
    if extends then
        if held ~= own or left <= 0 then return 0 end
        record, reply = value:sub(18), 1
    elseif left and left > 0 and acquires and id and held_id == id then
        -- The attempt that holds the lock asks again: its lease never becomes shorter.
        record, reply = value:sub(18), held + 0
        if details then reply = { reply, false, false, false } end
        if is_clock(time) and ms * 1000 <= left then return reply end
    elseif left and left <= 0 or acquires and not value then
        reply, record = time[1] * 1000000 + time[2], time[1] .. time[2]
        if #time[2] < 6 then record = time[1] .. ('00000' .. time[2]):sub(-6) end
        if held and held + 0 >= reply and held ~= '9007199254740990' then -- the last one that `ours` reads
            reply = held + 1
            record = ('%016.0f'):format(reply)
        end
        if id then record = record .. id end
        if owner then record = record .. ' ' .. owner end
        if details or recovers then
            local overdue = left and (-left - -left % 1000) / 1000
            reply = { reply, overdue or false, held and held + 0 or false, held_owner or false }
        end
    elseif channel then
        return nil
    else
        return false
    end
    if not is_clock(time) then return { err = NO_CLOCK } end
    return write(key, record, time, ms, retention) or reply
end

if name == 'lock_acquire' or name == 'lock_extend' or name == 'lock_recover' then
    local command = 'LOCK.' .. name:sub(6):upper()
    local is_whole = #ARGV >= 5 and (name ~= 'lock_extend' or #ARGV == 6)
    local fault = misused(command, is_whole and KEYS or {})
    if fault then return fault end
    local reply
    reply, queued = take(command, KEYS, ARGV, 2, time)
    if reply ~= nil then return reply end
end

-- Part two: the queue, and locks with several holders -----------------------------------------------------------------
--
-- The queue is a sorted set of attempts: <19 digits of ID> <n or s, for NOTIFY or SNOTIFY><*, for SHARED, or the n of
-- LIMIT> <channel>. An attempt's score is its ticket: the time in microseconds at which it arrived. Once it has been
-- notified of its turn, the score is the time of notification minus 2^52, so notified attempts come first. They have a
-- moment to claim the lock, and meanwhile count as holders. The lock stays free until the claim, which is the same call
-- again. A member with the score -inf is a space and a skipped channel: one of its attempts failed to claim in time.
--
-- `call` describes one call: command, keys, args, at, time, now, and the terms margin and retention. Server errors are
-- raised (redis.call), and `decide` catches them. Server calls that may legitimately fail use redis.pcall.

local CLAIM, NOTIFIED = 2000000, -4503599627370496
local MOST_HOLDERS, MOST_QUEUED, MOST_NOTIFIED, MOST_REMOVED, MOST_SKIPPED = 4096, 100000, 16, 1000, 64

local function whole(value) return ('%.0f'):format(value) end
local function fail(text) error({ err = text }, 0) end
local function check(fault) if fault then error(fault, 0) end end

-- Reads a call's terms, and its options from `args[at + from]` on.
local function options(call, from)
    local fault, ask = nil, {}
    call.margin, call.retention, fault = terms(call.args, call.at)
    check(fault)
    if not from then return end
    fault, ask.lease, ask.id, ask.owner, ask.details, ask.wait, ask.share, ask.most, ask.notify, ask.channel =
        parse(call.command, call.args, call.at - (call.more_keys or 0), call.at + from, true)
    check(fault)
    ask.wait, ask.most, call.ms = ask.wait or 0, ask.most or 1, (ask.lease or 0) + call.margin
    return ask
end

-- A call's token argument, as text of 16 digits.
local function own_token(call) return token_of(call.args[call.at + 2]) or fail(BAD_TOKEN) end

-- Reads a lock: its holders, live and expired, in order of expiry; how many of a set are live; and whether it excludes
-- everyone, as an exclusive holder and a foreign value do.
local function read(call, key)
    local lock, value = { key = key, holders = {}, live = 0 }, redis.pcall('GET', key)
    if not value then
        return lock
    elseif not value.err then
        local left, token, id, owner, fault = content(key, value, call.time)
        check(fault)
        lock.value, lock.excludes = value, not left or left > 0
        if left then lock.holders[1] = { at = call.now + left, token = token, id = id, owner = owner } end
        return lock
    elseif not value.err:find('WRONGTYPE', 1, true) then
        error(value, 0)
    end
    local members, known = redis.call('ZRANGE', key, 0, MOST_HOLDERS, 'WITHSCORES'), {}
    if #members > 2 * MOST_HOLDERS then
        fail('WRONGTYPE the sorted set has more than 4096 members, more than a lock can have holders')
    end
    for i = 1, #members, 2 do
        local member, at = members[i], math.floor(members[i + 1] * 1000000 + 0.5)
        local _, token, id, owner = ours('0000000000.000000' .. member, call.time)
        if not token or known[token] or at < 0 or at >= 1e16 then error(value, 0) end
        known[token], lock.live = true, lock.live + (at > call.now and 1 or 0)
        lock.holders[#lock.holders + 1] = { at = at, token = token, id = id, owner = owner, member = member }
    end
    lock.is_set = true
    return lock
end

-- The holder with this token or ID: preferably a live one, and of those the one with the largest token. The second
-- result is whether it is live.
local function find(call, lock, field, value)
    local found
    for _, holder in ipairs(lock.holders) do
        local is_later = not found or holder.at > call.now and (found.at <= call.now or holder.token > found.token)
        if value and holder[field] == value and is_later then found = holder end
    end
    return found, found and found.at > call.now
end

-- Whether an attempt for at most `most` holders is admitted, given the lock's holders and the attempts `ahead` of it.
local function fits(lock, most, ahead)
    return not lock.excludes and not ahead.excludes and lock.live + ahead.count < most
end

-- Removes a holder from a sorted set, and up to eight others whose retention has ended. The set expires when its last
-- holder's retention ends.
local function thin_out(call, lock, leaver)
    local stays, kept, gone, forgotten, last = call.retention < 0 and 60000 or call.retention, {}, {}, 0, 0
    for _, holder in ipairs(lock.holders) do
        local is_old = forgotten < 8 and math.ceil(holder.at / 1000) + stays <= math.floor(call.now / 1000)
        if holder == leaver or is_old then
            gone[#gone + 1] = holder.member
            if holder ~= leaver then forgotten = forgotten + 1 end
            if holder.at > call.now then lock.live = lock.live - 1 end
        else
            kept[#kept + 1], last = holder, math.max(last, holder.at)
        end
    end
    lock.holders = kept
    if #gone > 0 then redis.call('ZREM', lock.key, unpack(gone)) end
    if last > 0 and call.retention >= 0 then
        redis.call('PEXPIREAT', lock.key, whole(math.ceil(last / 1000) + call.retention))
    elseif last > 0 and redis.call('PTTL', lock.key) ~= -1 then
        redis.call('PERSIST', lock.key)
    end
end

-- Writes a holder of a sorted set, new or with a new lease. It replaces `before`.
local function put(call, lock, holder, before)
    if lock.value then redis.call('DEL', lock.key) end
    redis.call('ZADD', lock.key, (timestamp(call.time, call.ms, -1)), holder.member)
    if not lock.is_set then lock.holders, lock.value, lock.excludes, lock.is_set = {}, nil, false, true end
    if not holder.at then lock.holders[#lock.holders + 1], lock.live = holder, lock.live + 1 end
    holder.at = call.now + call.ms * 1000
    thin_out(call, lock, before)
end

-- Ends a holder's grant.
local function remove(call, lock, holder)
    if lock.is_set then return thin_out(call, lock, holder) end
    redis.call('DEL', lock.key)
    lock.holders, lock.value, lock.excludes = {}, nil, false
end

-- Gives a live holder a new lease.
local function prolong(call, lock, holder)
    if not is_clock(call.time) then fail(NO_CLOCK) end
    if lock.is_set then return put(call, lock, holder) end
    check(write(lock.key, lock.value:sub(18), call.time, call.ms, call.retention))
end

-- The token of the next grant: more than `least` if a holder has that much; `least` after the last that `ours` reads.
local function next_token(lock, least)
    local token = least
    for _, holder in ipairs(lock.holders) do token = math.max(token, holder.token and holder.token + 1 or 0) end
    return token < 9007199254740991 and token or least
end

-- Grants the lock to an attempt that fits. Returns the reply.
local function grant(call, lock, ask, token)
    if not is_clock(call.time) then fail(NO_CLOCK) end
    local before = lock.holders[1]
    if lock.is_set and #lock.holders < ask.most then before = nil end
    local record = ('%016.0f'):format(token) .. (ask.id or '') .. (ask.owner and ' ' .. ask.owner or '')
    if ask.share then
        put(call, lock, { member = record, token = record:sub(1, 16), id = ask.id }, before)
    else
        check(write(lock.key, record, call.time, call.ms, call.retention))
        lock.excludes = true
    end
    if not ask.details then return token end
    if not before then return { token, false, false, false } end
    local overdue = math.floor((call.now - before.at) / 1000)
    return { token, overdue, before.token and before.token + 0 or false, before.owner or false }
end

-- The parts of an attempt: its ID without leading zeros, how it is notified, how many holders it admits, its channel.
-- Nil for members that others wrote.
local function parts(member) return member:match('^0*(%d+) ([ns])(%*?%d*) (.+)$') end

-- How many holders an attempt admits, itself included, and whether it wants to be the only one.
local function most_of(member)
    local _, _, most = parts(member)
    return most == '*' and MOST_HOLDERS or tonumber(most) or 1, most == ''
end

-- The member of the attempt that asks; nil if it cannot be notified.
local function member_of(ask)
    local most = not ask.share and '' or ask.share == 'SHARED' and '*' or whole(ask.most)
    return ask.channel and ask.id .. ' ' .. (ask.notify == 'SNOTIFY' and 's' or 'n') .. most .. ' ' .. ask.channel
end

-- The number of attempts in a queue, without skipped channels.
local function length(key) return redis.call('ZCOUNT', key, '(-inf', '+inf') end

-- Counts a notified attempt as a holder.
local function count(ahead, member, at)
    local _, excludes = most_of(member)
    ahead.count, ahead.excludes, ahead.last = ahead.count + 1, ahead.excludes or excludes, at
end

-- Opens a lock's queue and checks its notified attempts. An attempt that failed to claim in time leaves, and its
-- channel is skipped. If a client that does not queue has taken the lock, they wait again, at the head. `own` is the
-- member of the attempt that asks. In the queue, `ahead` counts the other notified attempts, and `card` the members.
local function open(call, lock, key, own)
    local queue = { key = key, own = own, ahead = { count = 0, last = 0 }, skipped = {}, notified = 0, removed = 0 }
    queue.card = call.queued or redis.call('ZCARD', key)
    queue.is_empty = queue.card == 0
    if queue.is_empty then return queue end
    queue.score = own and redis.call('ZSCORE', key, own)
    local first, again, ahead = redis.call('ZRANGEBYSCORE', key, '-inf', '(0', 'WITHSCORES'), {}, queue.ahead
    for i = 1, #first, 2 do
        local member, at = first[i], first[i + 1] - NOTIFIED
        local id, _, _, channel = parts(member)
        if member:sub(1, 1) == ' ' then
            queue.skipped[member:sub(2)], queue.has_skipped = true, true
        elseif not id then
            queue.removed = queue.removed + redis.call('ZREM', key, member)
        elseif not fits(lock, most_of(member), ahead) then
            again[#again + 1] = member
        elseif member ~= own and call.now - at >= CLAIM then
            queue.removed, queue.skipped[channel] = queue.removed + redis.call('ZREM', key, member), true
            redis.call('ZADD', key, '-inf', ' ' .. channel)
            queue.has_skipped = true
        else
            if at > call.now + 100000 then -- the clock was set back: its time to claim the lock starts again
                at = math.max(call.now, ahead.last + 1)
                redis.call('ZADD', key, whole(at + NOTIFIED), member)
            end
            ahead.last = at
            if member == own then queue.may_claim = true else count(ahead, member, at) end
        end
    end
    if #again > 0 then
        local head = redis.call('ZRANGEBYSCORE', key, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or call.now
        for i, member in ipairs(again) do redis.call('ZADD', key, whole(head - #again - 1 + i), member) end
        queue.score = own and redis.call('ZSCORE', key, own)
    end
    local _, _, _, channel = parts(own or '')
    if channel and queue.skipped[channel] then
        queue.skipped[channel] = nil
        redis.call('ZREM', key, ' ' .. channel)
    end
    return queue
end

-- Whether the server reports that it is not in a cluster. CLUSTER KEYSLOT does not show this: Valkey 9.1 always replies
-- to it.
local function is_alone()
    local keys = redis.pcall('CLUSTER', 'COUNTKEYSINSLOT', 0)
    return type(keys) == 'table' and keys.err:find('cluster support disabled', 1, true) ~= nil
end

-- Publishes to an attempt. False: its channel has no subscriber. Nil: this caller may not publish there.
local function publish(queue, member, what, key)
    local id, how, _, channel = parts(member)
    local subscribers = redis.pcall(how == 's' and 'SPUBLISH' or 'PUBLISH', channel, what .. ' ' .. id .. ' ' .. key)
    if type(subscribers) == 'table' then return nil end
    if subscribers > 0 or how == 's' then return subscribers > 0 end
    queue.is_alone = queue.is_alone or is_alone() -- in a cluster, PUBLISH reaches subscribers on any node
    return not queue.is_alone
end

local function leave(queue, members)
    if members[1] then queue.removed = queue.removed + redis.call('ZREM', queue.key, unpack(members)) end
end

-- Notifies the attempts at the head that fit. Attempts whose channel is skipped or has no subscriber leave. Stops at
-- the attempt that asks; true if no other attempt waits ahead of it.
local function notify(call, lock, queue)
    local ahead, most = queue.ahead, 2
    if lock.excludes or ahead.excludes then return false end
    while not queue.is_empty and queue.removed < MOST_REMOVED do
        local heads, gone = redis.call('ZRANGEBYSCORE', queue.key, 0, '+inf', 'LIMIT', 0, most), {}
        for _, member in ipairs(heads) do
            local id, _, _, channel = parts(member)
            local stops = member == queue.own or queue.notified >= MOST_NOTIFIED
                or id and not fits(lock, most_of(member), ahead)
            local has_subscriber = not stops and id ~= nil and not queue.skipped[channel]
                and publish(queue, member, 'granted', lock.key)
            if stops or has_subscriber == nil then
                leave(queue, gone)
                return member == queue.own
            elseif has_subscriber then
                count(ahead, member, math.max(call.now, ahead.last + 1))
                redis.call('ZADD', queue.key, whole(ahead.last + NOTIFIED), member)
                queue.notified = queue.notified + 1
            else
                if id then queue.skipped[channel] = true end -- the channel's other attempts leave without a message
                gone[#gone + 1] = member
            end
        end
        leave(queue, gone)
        if #heads < most then return true end
        most = 64
    end
    return queue.is_empty
end

-- The end of a call: the queue is deleted once it has no attempts, and keeps at most 64 skipped channels.
local function close(queue)
    if queue.removed == 0 or not queue.has_skipped then
        return -- the server deletes an empty sorted set
    elseif length(queue.key) == 0 then
        redis.call('DEL', queue.key)
    else
        local skipped = redis.call('ZCOUNT', queue.key, '-inf', '-inf')
        if skipped > MOST_SKIPPED then redis.call('ZREMRANGEBYRANK', queue.key, 0, skipped - MOST_SKIPPED - 1) end
    end
end

-- Puts an attempt into the queue or keeps its place. The reply says when it has to ask again.
local function join(call, lock, queue, ask)
    local score = queue.score
    if not score then
        local last = redis.call('ZREVRANGE', queue.key, 0, 0, 'WITHSCORES')[2] or 0
        score = whole(math.max(call.now, last + 1))
        redis.call('ZADD', queue.key, score, queue.own)
    end
    if redis.call('PTTL', queue.key) < ask.wait then
        redis.call('PEXPIREAT', queue.key, whole(math.floor(call.now / 1000) + ask.wait))
    end
    if queue.removed >= MOST_REMOVED then return { 'WAITING', 0 } end
    local before = redis.call('ZCOUNT', queue.key, '(-inf', '(' .. score)
    if before > 0 then return { 'WAITING', (before == 1 or before == queue.ahead.count) and 2000 or 5000 } end
    -- The first in the queue asks again when the lock becomes free on its own: when enough live holders have expired.
    local holder = lock.holders[lock.is_set and #lock.holders - ask.most + 1 or 1]
    local left = holder and math.ceil((holder.at - call.now) / 1000) or redis.call('PTTL', lock.key)
    return { 'WAITING', left > 0 and math.min(left, 5000) or 5000 }
end

-- Why a sharded channel cannot notify for this lock; nil if it can, or if that is unknown.
local function bad_channel(channel, key)
    if is_before_7 then return { err = 'ERR SNOTIFY needs Redis 7.0 or later, or any version of Valkey' } end
    local slot = not is_alone() and redis.pcall('CLUSTER', 'KEYSLOT', channel)
    if type(slot) == 'number' and slot ~= redis.call('CLUSTER', 'KEYSLOT', key) then
        return { err = 'ERR channel does not hash to the slot of the key' }
    end
end

-- LOCK.ACQUIRE and LOCK.RECOVER.
local function acquire(call)
    local ask, recovers = options(call, 2), call.command == 'LOCK.RECOVER'
    ask.details = ask.details or recovers
    local lock = read(call, call.keys[1])
    local queue = open(call, lock, call.keys[2], member_of(ask))

    local holder, is_live = find(call, lock, 'id', ask.id)
    if is_live and not recovers then
        if not ask.share ~= not lock.is_set then
            fail('ERR id holds this lock ' .. (lock.is_set and 'with SHARED or LIMIT: send it again with one of them'
                or 'without SHARED and LIMIT: send it again without them') .. ', or use a new id')
        end
        -- The attempt that holds the lock asks again: its lease never becomes shorter.
        if call.now + call.ms * 1000 > holder.at then prolong(call, lock, holder) end
        if queue.score then leave(queue, { queue.own }) end
        close(queue)
        return ask.details and { holder.token + 0, false, false, false } or holder.token + 0
    end

    local waits = queue.own and ask.wait > 0
    if waits and ask.notify == 'SNOTIFY' and not queue.score then check(bad_channel(ask.channel, lock.key)) end
    if waits and not queue.score and queue.card >= MOST_QUEUED and length(queue.key) >= MOST_QUEUED then
        fail('BUSYLOCKS 100000 attempts are already waiting in the queue of this lock')
    end
    local is_next = queue.may_claim or notify(call, lock, queue) and fits(lock, ask.most, queue.ahead)
        and (queue.own or length(queue.key) == 0)
    local reply
    if is_next and (not recovers or lock.holders[1]) then
        reply = grant(call, lock, ask, next_token(lock, call.now))
        if queue.score then leave(queue, { queue.own }) end
        if ask.share then notify(call, lock, queue) end
    else
        reply = waits and join(call, lock, queue, ask)
    end
    close(queue)
    return reply
end

-- Ends the grant with this token or ID and the wait of `own`, and notifies the next attempts. Returns LOCK.RELEASE's
-- reply.
local function release(call, key, queue_key, field, value, own)
    if not call.queued then redis.call('ZCARD', queue_key) end -- any failure comes before a write
    local lock = read(call, key)
    local holder, is_live = find(call, lock, field, value)
    local ends = holder and (is_live or field == 'token')
    if ends then remove(call, lock, holder) end
    local queue = open(call, lock, queue_key, own)
    if queue.score then
        leave(queue, { own })
        publish(queue, own, 'cancelled', key)
    end
    notify(call, lock, queue)
    close(queue)
    return ends and (is_live and 1 or -1) or queue.score and 1 or 0
end

-- LOCK.CANCEL.
local function cancel(call)
    if #call.keys[1] > 4096 then fail('ERR key is longer than 4096 bytes') end
    local ask = options(call, 2)
    if not ask.channel then fail('ERR syntax error: NOTIFY or SNOTIFY is missing') end
    return release(call, call.keys[1], call.keys[2], 'id', ask.id, member_of(ask))
end

-- LOCK.EXTEND, LOCK.RELEASE and LOCK.CHECK, with the queue as a second key.
local function settle_any(call)
    local token, key = own_token(call), call.keys[1]
    options(call, call.command == 'LOCK.EXTEND' and 3 or nil)
    if call.command == 'LOCK.RELEASE' then return release(call, key, call.keys[2], 'token', token) end
    local lock = read(call, key)
    local holder, is_live = find(call, lock, 'token', token)
    if not is_live then return 0 end
    if call.command == 'LOCK.CHECK' then return math.max(0, math.floor((holder.at - call.now) / 1000) - call.margin) end
    prolong(call, lock, holder)
    return 1
end

-- LOCK.INFO: its fields, in order; nil where a script cannot know them.
local function info(call)
    local key, queue, now = call.keys[1], call.keys[2], call.now
    options(call)
    local lock = read(call, key)
    local holder = lock.holders[#lock.holders] or {}
    local is_foreign = lock.value and not holder.at
    local is_held = not is_foreign and (lock.excludes or lock.live > 0)
    local state = is_foreign and 'foreign' or is_held and 'held' or holder.at and 'expired' or 'free'
    local held = is_held and holder.token
    local text = holder.member and ('%.6f'):format(holder.at / 1000000)
        or holder.at and lock.value:sub(1, holder.token and 17 or -1)
    local free = is_foreign and redis.call('PTTL', key) or is_held and math.ceil((holder.at - now) / 1000) or 0
    local since = queue and redis.call('ZRANGEBYSCORE', queue, '(-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    local function past(from) return from and math.max(0, math.floor((now - from) / 1000)) or false end
    return {
        'state', state, 'token', holder.token and holder.token + 0 or false,
        'id', holder.id and holder.id:match('^0*(%d+)$') or false, 'owner', holder.owner or false,
        'timestamp', text or false, 'held-ms', past(held),
        'lease-ms', held and math.max(0, math.floor((holder.at - now) / 1000 - call.margin)) or false,
        'free-in-ms', free >= 0 and free or false, 'overdue-ms', past(not is_held and holder.at),
        'session', false, 'client', false, 'addr', false,
        'waiters', queue and length(queue) or false, 'oldest-wait-ms', past(since and since % -NOTIFIED),
    }
end

-- LOCK.MACQUIRE, LOCK.MEXTEND and LOCK.MRELEASE: several locks, then their queues, all or nothing.
local function all(call)
    local keys, n, acquires = call.keys, #call.keys / 2, call.command == 'LOCK.MACQUIRE'
    if n % 1 ~= 0 or n > 1024 then fail('ERR the keys are not 1 to 1024 locks and as many queues') end
    local known, locks, queues, bytes = {}, {}, {}, 0
    for i = 1, n do
        check(misused(call.command, { keys[i], keys[n + i] }))
        bytes = bytes + (acquires and #keys[i] or 0)
        if #keys[i] > 4096 and acquires then fail(('ERR key %d is longer than 4096 bytes'):format(i)) end
        if bytes > 262144 then fail(('ERR keys 1 to %d total more than 262144 bytes'):format(i)) end
        if known[keys[i]] then fail(('ERR key %d is the same as key %d'):format(i, known[keys[i]])) end
        known[keys[i]] = i
    end
    call.more_keys = n -- numkeys and the keys come before the options of the commands
    local token = not acquires and own_token(call)
    local ask = options(call, acquires and 2 or call.command == 'LOCK.MEXTEND' and 3 or nil)
    for i = 1, n do locks[i], queues[i] = read(call, keys[i]), redis.call('ZCARD', keys[n + i]) end
    if call.command == 'LOCK.MRELEASE' then
        local released = 0
        for i = 1, n do
            if release(call, keys[i], keys[n + i], 'token', token) ~= 0 then released = released + 1 end
        end
        return released
    end
    -- A token or an ID has to hold all of them under one grant.
    local field, value, held, holders, is_one = acquires and 'id' or 'token', token or ask.id, 0, {}, true
    for i, lock in ipairs(locks) do
        local holder, is_live = find(call, lock, field, value)
        if is_live and acquires and lock.is_set then
            fail('ERR id holds this lock with SHARED or LIMIT: send it again with one of them, or use a new id')
        elseif is_live then
            held, holders[i], token = held + 1, holder, token or holder.token
            is_one = is_one and holder.token == token
        end
    end
    if held == n and is_one then
        for i, lock in ipairs(locks) do
            if not acquires or call.now + call.ms * 1000 > holders[i].at then prolong(call, lock, holders[i]) end
        end
        return acquires and token + 0 or 1
    elseif not acquires then
        return 0
    end
    local is_admitted, next_one = held == 0, call.now
    for i, lock in ipairs(locks) do
        local queue = open(call, lock, keys[n + i])
        notify(call, lock, queue)
        is_admitted = is_admitted and fits(lock, 1, queue.ahead) and (queue.is_empty or length(queue.key) == 0)
        next_one = next_token(lock, next_one)
        close(queue)
    end
    if not is_admitted then return false end
    for _, lock in ipairs(locks) do grant(call, lock, ask, next_one) end
    return next_one
end

-- The command for a function name, its function in part two, and the minimum and maximum number of arguments.
local function meaning(name)
    local verb, several = name:match('^lock_(%l+)(.*)$')
    local is_one, is_all = several == '', several == '_all'
    if verb == 'acquire' and is_one then return 'LOCK.ACQUIRE', acquire, 4, 1e9 end
    if verb == 'release' and is_one then return 'LOCK.RELEASE', settle_any, 3, 3 end
    if verb == 'recover' and is_one then return 'LOCK.RECOVER', acquire, 4, 1e9 end
    if verb == 'extend' and is_one then return 'LOCK.EXTEND', settle_any, 5, 5 end
    if verb == 'check' and is_one then return 'LOCK.CHECK', settle_any, 3, 3 end
    if verb == 'cancel' and is_one then return 'LOCK.CANCEL', cancel, 4, 1e9 end
    if verb == 'info' and is_one then return 'LOCK.INFO', info, 2, 2 end
    if verb == 'acquire' and is_all then return 'LOCK.MACQUIRE', all, 4, 1e9 end
    if verb == 'extend' and is_all then return 'LOCK.MEXTEND', all, 5, 5 end
    if verb == 'release' and is_all then return 'LOCK.MRELEASE', all, 3, 3 end
end

-- Why a call is wrong, judging by the number of keys and arguments; nil if it could be valid.
local function wrong_call(command, run, keys, arguments, least, most)
    local is_whole = arguments >= least and arguments <= most and (run ~= cancel and run ~= all or keys[2])
    if run == all and is_whole then return nil end
    return misused(command, is_whole and keys or {})
end

-- Part two decides. An error that it raises becomes the reply.
local function decide(run, command, keys, args, at, time, queued)
    if time.err then return refused(time) end
    if type(queued) == 'table' then return refused(queued) end
    local now = time[1] * 1000000 + time[2]
    local call = { command = command, keys = keys, args = args, at = at, time = time, now = now, queued = queued }
    local is_done, reply = pcall(run, call)
    if is_done then return reply end
    return refused(type(reply) == 'table' and reply or { err = tostring(reply) })
end

if is_script then
    local command, run, least, most = meaning(name or '')
    if not run then return { err = 'ERR function is not lock_acquire or another lock.lua function' } end
    return wrong_call(command, run, KEYS, #ARGV - 1, least, most) or decide(run, command, KEYS, ARGV, 2, time, queued)
end

-- Calls the module's command instead. No valid command has more than 40 arguments after its keys, so the first wrong
-- argument is among these.
local function forward(command, run, keys, args)
    local words = run == all and { whole(#keys / 2), unpack(keys, 1, #keys / 2) } or { keys[1] }
    if run == cancel then
        local fault, _, id = parse(command, args, 1, 3, true)
        if fault then return fault end
        args = { 0, 0, id }
    end
    for i = 3, math.min(#args, 40) do words[#words + 1] = args[i] end
    local reply = redis.pcall(command, unpack(words))
    return type(reply) == 'table' and reply.err and refused(reply) or reply
end

-- A function checks once a second whether the module is loaded; if it is, the module's command decides.
local asked, is_loaded
local functions = {
    { 'lock_acquire', {}, take }, { 'lock_recover', {}, take }, { 'lock_extend', { 'allow-oom' }, take },
    { 'lock_release', { 'allow-oom' }, settle }, { 'lock_check', { 'no-writes' }, settle },
    { 'lock_cancel', { 'allow-oom' } }, { 'lock_info', { 'no-writes' } }, { 'lock_acquire_all', {} },
    { 'lock_extend_all', { 'allow-oom' } }, { 'lock_release_all', { 'allow-oom' } },
}
for i = 1, #functions do
    local it = functions[i]
    local quick, command, run, least, most = it[3], meaning(it[1])
    redis.register_function { function_name = it[1], flags = it[2], callback = function(keys, args)
        local fault = wrong_call(command, run, keys, #args, least, most)
        if fault then return fault end
        local time = redis.pcall('TIME')
        if time[1] ~= asked then asked, is_loaded = time[1], pcall(redis.acl_check_cmd, 'LOCK.CHECK', '', '0') end
        if is_loaded then return forward(command, run, keys, args) end
        local reply, queued
        if quick then reply, queued = quick(command, keys, args, 1, time) end
        if reply == nil then reply = decide(run, command, keys, args, 1, time, queued) end
        return reply
    end }
end
