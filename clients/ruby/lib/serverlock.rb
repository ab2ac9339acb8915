# frozen_string_literal: true

require "openssl"
require "redis"
require_relative "serverlock/version"
require_relative "serverlock/errors"
require_relative "serverlock/clock"
require_relative "serverlock/command"
require_relative "serverlock/request"
require_relative "serverlock/lease"
require_relative "serverlock/portable"
require_relative "serverlock/gate"
require_relative "serverlock/client"
require_relative "serverlock/server"
require_relative "serverlock/engine"
require_relative "serverlock/renewals"
require_relative "serverlock/timer"
require_relative "serverlock/debts"
require_relative "serverlock/wait"
require_relative "serverlock/subscription"
require_relative "serverlock/blocking"
require_relative "serverlock/lone"
require_relative "serverlock/attempt"
require_relative "serverlock/hold"
require_relative "serverlock/held"
require_relative "serverlock/scopes"
require_relative "serverlock/leader"
require_relative "serverlock/locks"

# Distributed locks for Redis and Valkey, through the LOCK.* commands of the redis-lock module. Start with {Locks}.
module Serverlock
end
