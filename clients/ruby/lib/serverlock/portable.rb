# frozen_string_literal: true

require "digest"

module Serverlock
  # The portable script, for servers without the module, and the scripts of `fenced`.
  # @private
  module Portable
    TEXT = File.read(File.expand_path("lock.lua", __dir__), encoding: "UTF-8").split("\n", 2)[1].freeze
    SHA = Digest::SHA1.hexdigest(TEXT).freeze
    COMMANDS = %w[lock.acquire lock.recover lock.extend lock.release lock.check].freeze
    MARGIN = 1000
    RETENTION = 60_000

    FENCED = <<~LUA
      for i = 1, #KEYS do
        if redis.call('LOCK.CHECK', KEYS[i], ARGV[1]) <= 0 then return redis.error_reply('LOST the lock is not held') end
      end
      return redis.call(unpack(ARGV, 2))
    LUA
    FENCED_PORTABLE = <<~LUA.freeze
      local all = ARGV
      local function left()
        local ARGV = { 'lock_check', '#{MARGIN}', '-1', all[1] }
        #{TEXT}
      end
      local held = left()
      if type(held) == 'table' then return held end
      if held <= 0 then return redis.error_reply('LOST the lock is not held') end
      return redis.call(unpack(all, 2))
    LUA

    module_function

    # The arguments of EVALSHA and EVAL that stand for a command.
    def call(command, retention)
      [1, command[1], command[0].tr(".", "_"), MARGIN, retention, *command.drop(2)]
    end
  end
end
