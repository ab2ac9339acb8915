# frozen_string_literal: true

require "digest"

module Serverlock
  # The portable script, for servers without the module, and the scripts of `fenced`.
  # @private
  module Portable
    TEXT = File.read(File.expand_path("lock.lua", __dir__), encoding: "UTF-8").split("\n", 2)[1].freeze
    SHA = Digest::SHA1.hexdigest(TEXT).freeze
    MARGIN = 1000
    RETENTION = 60_000

    FENCED = <<~LUA
      for i = 1, #KEYS do
        if redis.call('LOCK.CHECK', KEYS[i], ARGV[1]) <= 0 then return redis.error_reply('LOST the lock is not held') end
      end
      return redis.call(unpack(ARGV, 2))
    LUA
    # A lock with several holders is a sorted set: the score is the timestamp, and the member begins with the token.
    FENCED_PORTABLE = <<~LUA.freeze
      if not redis.REDIS_VERSION_NUM then redis.replicate_commands() end
      local time = redis.call('TIME')
      local token = ('%016.0f'):format(ARGV[1])
      for i = 1, #KEYS do
        local value, at = redis.pcall('GET', KEYS[i]), 0
        if value and value.err then
          local holders = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
          for j = 1, #holders, 2 do
            if holders[j]:sub(1, 16) == token then at = holders[j + 1] end
          end
        elseif value and value:sub(18, 33) == token then
          at = value:sub(1, 17)
        end
        local left = (at - time[1]) * 1000 - time[2] / 1000 - #{MARGIN}
        if left < 1 then return redis.error_reply('LOST the lock is not held') end
      end
      return redis.call(unpack(ARGV, 2))
    LUA
  end
end
