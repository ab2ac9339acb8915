# frozen_string_literal: true

# One process of the client benchmark, in Ruby: worker.rb CONTENDER PORT. run.py describes its input.

$LOAD_PATH.unshift(File.expand_path("../../clients/ruby/lib", __dir__))
require "digest"
require "json"
require "redis"
require "securerandom"

LEASE = 30

# The redlock gem's scripts, called with EVALSHA, and its retries. The gem itself is not in Debian.
class Redlock
  LOCK = <<~LUA
    if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or redis.call("get", KEYS[1]) == ARGV[1] then
      return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
    end
  LUA
  UNLOCK = <<~LUA
    if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end
  LUA

  def initialize(redis)
    @redis = redis
    @lock = redis.script(:load, LOCK)
    @unlock = redis.script(:load, UNLOCK)
  end

  def lock(key, wait)
    value = SecureRandom.uuid
    tries = 0
    until @redis.evalsha(@lock, keys: [key], argv: [value, LEASE * 1000, "yes"])
      raise "refused" if wait.zero? || (tries += 1) > 1000

      sleep(rand(200..249) / 1000.0)
    end
    value
  end

  def unlock(key, value)
    @redis.evalsha(@unlock, keys: [key], argv: [value])
  end
end

def redis(port, timeout = 5)
  Redis.new(host: "127.0.0.1", port:, timeout:)
end

# Each returns, for a key and a wait, a function that acquires and one that releases.
CONTENDERS = {
  "redis-rb package" => lambda do |port|
    require "serverlock"
    locks = Serverlock::Locks.new(redis(port))
    lambda do |key, wait|
      lock = locks.lock(key, lease: LEASE, wait:)
      [-> { lock.acquire }, ->(held) { held.release }]
    end
  end,
  "redis-rb raw" => lambda do |port|
    client = redis(port)
    patient = redis(port, 3600)
    lambda do |key, wait|
      mine = wait.positive? ? patient : client
      more = wait.positive? ? ["WAIT", wait * 1000] : []
      [-> { mine.call("LOCK.ACQUIRE", key, "PX", LEASE * 1000, *more) }, ->(token) { mine.call("LOCK.RELEASE", key, token) }]
    end
  end,
  "redis-rb redlock" => lambda do |port|
    redlock = Redlock.new(redis(port))
    ->(key, wait) { [-> { redlock.lock(key, wait) }, ->(value) { redlock.unlock(key, value) }] }
  end
}.freeze

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

def pairs(acquire, release, count)
  began = now
  count.times { release.call(acquire.call) }
  now - began
end

def hot(acquire, release, seconds)
  waits = []
  ends = now + seconds
  while (asked = now) < ends
    held = acquire.call
    waits << ((now - asked) * 1e6).to_i
    release.call(held)
  end
  waits
end

# Starts this many threads, each waiting for its own lock.
def waits(made, count)
  count.times { |number| Thread.new { made.call("waits:#{number}", 3600)[0].call } }
  true
end

contender, port = ARGV
made = CONTENDERS.fetch(contender).call(Integer(port))
kept = Hash.new { |locks, (key, wait)| locks[[key, wait]] = made.call(key, wait) }
own = ["bench:#{Process.pid}", 0]
pairs(*kept[own], 3) # connects, loads scripts
$stdout.sync = true
puts "ready"
$stdin.each_line do |line|
  order, *words = line.split
  began = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
  cpu = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - began }
  answer = case order
           when "pair" then [pairs(*kept[own], Integer(words[0])), cpu.call]
           when "hot" then [hot(*kept[[words[0], 60]], Float(words[1])), cpu.call]
           when "waits" then waits(made, Integer(words[0]))
           when "rss" then File.read("/proc/self/status")[/VmRSS:\s*(\d+)/, 1].to_i
           end
  puts JSON.generate(answer)
end
