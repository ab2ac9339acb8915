# frozen_string_literal: true

require_relative "../serverlock"

module Serverlock
  # The interface of the redlock gem, over one {Locks}. An attempt waits in the queue for as long as the gem's retries
  # would have taken.
  #
  # As in the gem, a lock is not renewed, and counts as held for its whole time to live.
  class Redlock
    # Raised by `lock!`.
    class LockError < StandardError
      def initialize(resource)
        super("failed to acquire lock on '#{resource}'")
      end
    end

    # Raised by `lock` if the server cannot be reached.
    class LockAcquisitionError < LockError
      # @return [Array<Error>] the error from each server: always one
      attr_reader :errors

      def initialize(message, errors)
        super(message)
        @errors = errors
      end
    end

    # The gem's defaults, in milliseconds except for the count.
    DEFAULTS = { retry_count: 3, retry_delay: 200, retry_jitter: 50 }.freeze
    # The options of a call, and options that mean nothing with a single server.
    OTHERS = %i[extend extend_only_if_locked redis_timeout time_source].freeze
    # Old names of `extend_only_if_locked`.
    DEPRECATED = %i[extend_life extend_only_if_life].freeze
    URL = "redis://localhost:6379"
    private_constant :DEFAULTS, :OTHERS, :DEPRECATED, :URL

    # @param servers [Array, Locks, Redis, ConnectionPool, String] one server, as a client or a URL; several are refused
    # @param options [Hash] retry_count, retry_delay (milliseconds, or a callable that gets the number of the try) and
    #   retry_jitter
    # @raise [BadArgument] for several servers, and for an unknown option
    def initialize(servers = URL, options = {})
      server = servers.is_a?(Array) && servers.size == 1 ? servers[0] : servers
      raise BadArgument, "redlock over several servers is a different kind of lock: give one server" if server.is_a?(Array)

      server = ::Redis.new(url: server, **(options[:redis_timeout] ? { timeout: options[:redis_timeout] } : {})) if server.is_a?(String)
      @locks = server.is_a?(Locks) ? server : Locks.new(server)
      @options = DEFAULTS.merge(known(options))
    end

    # @param resource [String]
    # @param ttl [Integer] milliseconds
    # @param options [Hash] as for {#initialize}; `extend:` a lock info to be extended, and
    #   `extend_only_if_locked: true`
    # @yieldparam lock_info [Hash, false] validity (milliseconds), resource and value; false if the lock was refused
    # @return [Hash, Boolean] the lock info or false; with a block, whether it was locked
    # @raise [LockAcquisitionError] if the server does not reply
    def lock(resource, ttl, options = {}, &block)
      lock_info = try(resource, ttl, known(options))
      return lock_info unless block

      begin
        yield lock_info
        !lock_info.equal?(false)
      ensure
        unlock(lock_info) if lock_info
      end
    end

    # The same, but a refusal is an error, and the block is called without arguments.
    # @raise [LockError]
    def lock!(resource, ttl, options = {}, &block)
      raise BadArgument, "lock! takes a block" unless block

      lock(resource, ttl, options) do |lock_info|
        raise LockError, resource unless lock_info

        return yield
      end
    end

    # @param lock_info [Hash] of this or another process
    # @return [Boolean] whether it was locked; false if the server does not reply
    def unlock(lock_info)
      !call(lock_info[:resource], "release", token(lock_info)).zero?
    rescue NoServer
      false
    end

    # @param lock_info [Hash]
    # @return [Integer, nil] milliseconds; nil if this lock does not hold it, or if the server does not reply
    def get_remaining_ttl_for_lock(lock_info)
      left = call(lock_info[:resource], "check", token(lock_info))
      left if left.positive?
    rescue NoServer
      nil
    end

    # @param resource [String]
    # @return [Integer, nil] milliseconds until others may have it, whoever holds it; nil if it is free, or if the
    #   server does not reply
    def get_remaining_ttl_for_resource(resource)
      info = Request.fields(call(resource, "info"))
      left = info["lease-ms"]
      left if info["state"] == "held" && left&.positive?
    rescue NoServer
      nil
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
      old = options.slice(*DEPRECATED)
      unknown = options.keys - DEFAULTS.keys - OTHERS - DEPRECATED
      raise BadArgument, "unknown options: #{unknown.join(', ')}" unless unknown.empty?
      return options if old.empty?

      warn("DEPRECATION WARNING: the options #{DEPRECATED.join(' and ')} have been renamed extend_only_if_locked.")
      options.except(*DEPRECATED).merge(extend_only_if_locked: old.values.any?)
    end

    def try(resource, ttl, options)
      return extend(resource, options[:extend], ttl, options) if options[:extend]

      began = @locks.engine.clock.now
      hold = @locks.grant(Request.new(resource, lease: ttl / 1000.0, wait: wait(@options.merge(options)), owner: nil))
      { validity: (ttl - ((@locks.engine.clock.now - began) * 1000)).floor.clamp(0, ttl), resource:, value: hold.token.to_s }
    rescue Refused, TimedOut
      false
    rescue NoServer, Unavailable, Denied => e
      raise LockAcquisitionError.new(e.message, [e])
    end

    # In the gem, extending a lock that has ended locks it again, unless the caller asks for `extend_only_if_locked`.
    def extend(resource, lock_info, ttl, options)
      value = lock_info[:value].to_s
      return { validity: ttl, resource:, value: } if
        value.match?(/\A\d{1,19}\z/) && call(resource, "extend", value.to_i, "PX", ttl) == 1
      return false if options[:extend_only_if_locked]

      try(resource, ttl, options.except(:extend).merge(retry_count: 0))
    end

    # How long the gem would have kept trying, in seconds.
    def wait(options)
      tries = options[:retry_count]
      delay = options[:retry_delay]
      delays = Array.new(tries) { |number| (delay.respond_to?(:call) ? delay.call(number + 1) : delay) + (options[:retry_jitter] / 2.0) }
      delays.sum / 1000.0
    end

    def token(lock_info)
      Integer(lock_info[:value], 10)
    rescue ArgumentError, TypeError
      raise BadArgument, "not a lock info of this interface: #{lock_info.inspect}"
    end

    def call(resource, name, *arguments)
      command = Command.new(Keys.new([resource]), name, arguments)
      tries = 0
      begin
        Thread.handle_interrupt(ON_BLOCKING) { @locks.engine.server.call(command) }
      rescue ConnectionLost => e
        retry if (tries += 1) < 2
        raise NoServer.new("lock #{resource.inspect}: #{e.message}", key: resource)
      rescue ReplyError => e
        raise e.for(resource)
      end
    end
  end
end
