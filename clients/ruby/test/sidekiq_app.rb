# frozen_string_literal: true

# The Sidekiq tests run it with `sidekiq -r`.
$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "sidekiq"
require "serverlock/sidekiq"

Redis.silence_deprecations = true # Sidekiq's own
# By default Sidekiq looks for rescheduled jobs 10 s after its start, and then about every 5 s times the number of its
# processes.
Sidekiq.configure_server { |config| config.options[:poll_interval_average] = 1 }
Serverlock::Sidekiq.configure(Serverlock::Locks.new(Redis.new(url: ENV.fetch("REDIS_URL"))))

# Reports when it runs, and keeps running until the test stops it.
class Slow
  include Sidekiq::Worker

  def perform(name)
    redis = Redis.new(url: ENV.fetch("REDIS_URL"))
    redis.rpush("began:#{name}", Process.pid)
    running = redis.incr("running:#{name}")
    redis.set("most:#{name}", running) if running > redis.get("most:#{name}").to_i
    sleep(0.05) until redis.exists?("end:#{name}")
    redis.decr("running:#{name}")
    redis.rpush("ended:#{name}", Process.pid)
  end
end

# One at a time.
class OneAtATime < Slow
  sidekiq_options serverlock: { unique: :while_executing, lease: 2, again_in: 1 }, retry: false
end

# Once until it has ended.
class OnceUntilDone < Slow
  sidekiq_options serverlock: { unique: :until_executed, lease: 2 }, retry: false
end
