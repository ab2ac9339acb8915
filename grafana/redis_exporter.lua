-- What INFO lock says, for redis_exporter: redis_exporter --script grafana/redis_exporter.lua
-- It becomes redis_script_values{key="lock_grants"} and so on, and
-- redis_script_values{key="lock_wait_percentiles_usec_p99"} for the percentiles.
local values = {}
local function add(name, value)
    values[#values + 1] = name
    values[#values + 1] = value
end
for name, value in string.gmatch(redis.call('INFO', 'lock'), '(lock_[%w_]+):([^\r\n]+)') do
    if string.match(value, '^%d+$') then
        add(name, value)
    else
        for percentile, microseconds in string.gmatch(value, '(p[%d.]+)=(%d+)') do
            add(name .. '_' .. percentile, microseconds)
        end
    end
end
return values
