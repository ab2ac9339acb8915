# Waits for a lock with redis-rb and its default time-outs and retries.
#
# redis_rb.rb PORT KEY OWNER [ID]

require "redis"

port, key, owner, *attempt = ARGV
client = Redis.new(port: Integer(port))
command = ["LOCK.ACQUIRE", key, "EX", 60, "WAIT", 20000, "OWNER", owner]
command += ["ID", attempt[0]] unless attempt.empty?
begin
  token = client.call(command)
  puts "token #{token}"
  puts "released #{client.call(["LOCK.RELEASE", key, token])}" if token
rescue Redis::BaseError => error
  puts "gave up: #{error.class} #{error}"
end
