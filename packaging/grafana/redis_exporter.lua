-- Exports INFO lock: redis_exporter --script packaging/grafana/redis_exporter.lua
-- A field becomes redis_script_values{key="lock_grants"} and so on. A field with several parts becomes one value for
-- each: redis_script_values{key="lock_wait_percentiles_usec_p99"},
-- redis_script_values{key="lock_wait_histogram_ms_le_10"}.
local values = {}
local function add(name, value)
    values[#values + 1] = name
    values[#values + 1] = value
end
for name, value in string.gmatch(redis.call('INFO', 'lock'), '(lock_[%w_]+):([^\r\n]+)') do
    if string.match(value, '^%d+$') then
        add(name, value)
    else
        for part, number in string.gmatch(value, '([%w_.]+)=(%d+)') do
            add(name .. '_' .. part, number)
        end
    end
end
return values
