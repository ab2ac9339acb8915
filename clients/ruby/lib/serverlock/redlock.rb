# frozen_string_literal: true

require_relative "../serverlock"

module Serverlock
  # The interface of the gem redlock, over one {Locks}. An attempt waits in the queue for as long as the retries of the
  # gem would have taken.
  #
  # As in the gem, a lock is not renewed, and counts for all of its time to live.
  class Redlock
    # What `lock!` raises.
    class LockError < StandardError
      def initialize(resource)
        super("failed to acquire lock on '#{resource}'")
      end
    end

    # The defaults of the gem, in milliseconds but for the count.
    DEFAULTS = { retry_count: 3, retry_delay: 200, retry_jitter: 50 }.freeze
    # Options of the gem without a meaning where one server decides.
    IGNORED = %i[redis_timeout extend extend_only_if_locked].freeze

    # @param locks [Locks, Redis, ConnectionPool, Array] one server: several masters are refused
    # @param options [Hash] retry_count, retry_delay (milliseconds, or what is called with the number of the try) and
    #   retry_jitter
    def initialize(locks, options = {})
      locks = locks[0] if locks.is_a?(Array) && locks.size == 1
      raise BadArgument, "redlock over several servers is not this lock: give one" if locks.is_a?(Array)

      @locks = locks.is_a?(Locks) ? locks : Locks.new(locks)
      @options = DEFAULTS.merge(known(options))
    end

    # @param resource [String]
    # @param ttl [Integer] milliseconds
    # @param options [Hash] as for {#initialize}; `extend:` a lock info to be extended, and `extend_only_if_locked: true`
    # @yieldparam lock_info [Hash, false] validity (milliseconds), resource and value; false where the lock was refused
    # @return [Hash, false, Object] the lock info or false; with a block what that returns
    def lock(resource, ttl, options = {}, &block)
      lock_info = try(resource, ttl, known(options))
      return lock_info unless block

      begin
        yield lock_info
      ensure
        unlock(lock_info) if lock_info
      end
    end

    # The same, where a refusal is an error, and the block is called without arguments.
    # @raise [LockError]
    def lock!(resource, ttl, options = {}, &block)
      raise BadArgument, "lock! takes a block" unless block

      lock(resource, ttl, options) do |lock_info|
        raise LockError, resource unless lock_info

        return yield
      end
    end

    # @param lock_info [Hash] of this or of another process
    # @return [Boolean] whether it was locked
    def unlock(lock_info)
      call(lock_info, ["lock.release", lock_info[:resource], token(lock_info)]).nonzero? ? true : false
    end

    # @param lock_info [Hash]
    # @return [Integer, nil] milliseconds; nil where it is not locked by that
    def get_remaining_ttl_for_lock(lock_info)
      left = call(lock_info, ["lock.check", lock_info[:resource], token(lock_info)])
      left if left.positive?
    end

    # @param resource [String]
    # @return [Integer, nil] milliseconds until others may have it, whoever has it; nil where it is free
    def get_remaining_ttl_for_resource(resource)
      info = @locks.engine.client.call(["lock.info", resource])
      info = info.each_slice(2).to_h if info.is_a?(Array)
      info["lease-ms"] if info["state"] == "held" && info["lease-ms"].positive?
    rescue ReplyError => e
      raise e.for(resource)
    rescue ConnectionLost => e
      raise NoServer.new("lock #{resource.inspect}: #{e.message}", key: resource)
    end

    # @param resource [String]
    def locked?(resource)
      !get_remaining_ttl_for_resource(resource).nil?
    end

    # @param lock_info [Hash]
    def valid_lock?(lock_info)
      !get_remaining_ttl_for_lock(lock_info).nil?
    end

    private

    def known(options)
      unknown = options.keys - DEFAULTS.keys - IGNORED
      raise BadArgument, "unknown options: #{unknown.join(', ')}" unless unknown.empty?

      options
    end

    def try(resource, ttl, options)
      return extend(options[:extend], ttl, options) if options[:extend]

      began = Clock.now
      hold = @locks.grant(Request.new(resource, lease: ttl / 1000.0, wait: wait(@options.merge(options))))
      { validity: (ttl - ((Clock.now - began) * 1000)).floor.clamp(0, ttl), resource:, value: hold.token.to_s }
    rescue Refused, TimedOut
      false
    end

    # In the gem, to extend a lock that has ended means to lock it again, unless one asks for less.
    def extend(lock_info, ttl, options)
      reply = call(lock_info, ["lock.extend", lock_info[:resource], token(lock_info), "PX", ttl])
      return { validity: ttl, resource: lock_info[:resource], value: lock_info[:value] } if reply == 1
      return false if options[:extend_only_if_locked]

      try(lock_info[:resource], ttl, options.except(:extend))
    end

    # For how long the tries of the gem would have gone on, in seconds.
    def wait(options)
      tries = options[:retry_count]
      delay = options[:retry_delay]
      delays = Array.new(tries) { |number| (delay.respond_to?(:call) ? delay.call(number) : delay) + (options[:retry_jitter] / 2.0) }
      delays.sum / 1000.0
    end

    def token(lock_info)
      Integer(lock_info[:value], 10)
    rescue ArgumentError, TypeError
      raise BadArgument, "no lock info of this interface: #{lock_info.inspect}"
    end

    def call(lock_info, command)
      tries = 0
      begin
        Thread.handle_interrupt(ON_BLOCKING) { @locks.engine.server.call(command) }
      rescue ConnectionLost => e
        retry if (tries += 1) < 2
        raise NoServer.new("lock #{lock_info[:resource].inspect}: #{e.message}", key: lock_info[:resource])
      rescue ReplyError => e
        raise e.for(lock_info[:resource])
      end
    end
  end
end
