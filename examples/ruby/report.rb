# frozen_string_literal: true

require "serverlock"

redis = Redis.new(host: "localhost", port: 6379)
locks = Serverlock::Locks.new(redis) # one for each Redis client in the application

locks.lock("report", lease: 10, wait: 60) do |held| # raises Serverlock::TimedOut if somebody else still has it
  puts "working, token #{held.token}" # pass the token to the storage with each write
  10.times do
    held.check # before each step: raises Serverlock::Lost if the lock is no longer held
    sleep 1
  end
end
