# frozen_string_literal: true

require "redis"

module Serverlock
  # The redis-rb calls that this package needs differ between versions 4 and 5.
  LIBRARY =
    case ::Redis::VERSION
    when /\A4\./
      require_relative "redis4"
      Redis4
    when /\A5\./
      require_relative "redis5"
      Redis5
    else
      raise LoadError, "serverlock needs redis-rb 4.8 or 5, not #{::Redis::VERSION}"
    end
  private_constant :LIBRARY

  # The application's client: a Redis, or a ConnectionPool of them.
  # @private
  class Client
    # Locks use at most this many of a pool's connections at a time.
    FROM_POOL = 2
    CROWD = 8

    attr_reader :library, :sample, :clock

    # The client's commands, unless it has some already.
    def self.of(client)
      client.is_a?(Client) ? client : new(client)
    end

    def self.library_of(client)
      return LIBRARY if client.is_a?(::Redis)

      raise BadArgument, "client is not a Redis of redis-rb, or a ConnectionPool of them: #{client.class}"
    end

    def self.pool?(client)
      defined?(::ConnectionPool) && (client.is_a?(::ConnectionPool) || ::ConnectionPool::Wrapper === client) # rubocop:disable Style/CaseEquality
    end

    # `library`: sends commands over the client; `clock`: counts leases and waits.
    def initialize(client, library: nil, clock: Clock)
      if Client.pool?(client)
        @pool = client
        client.with { |one| @sample = one }
      else
        @sample = client
      end
      @library = library || Client.library_of(@sample)
      @clock = clock
      renew
    end

    # After a fork, the callers that hold a slot are gone.
    def renew
      @gate = Gate.new(@pool ? FROM_POOL : 1)
    end

    # Sends one call, once. Runs the block when it is this call's turn. @raise [ReplyError, ConnectionLost]
    def call(command, &sending)
      in_turn(sending) { |redis| @library.call(redis, command) }
    end

    # Sends TIME, in a cluster to the node that has the key. Otherwise like `call`.
    def time(key, &sending)
      in_turn(sending) { |redis| @library.time(redis, key) }
    end

    # Whether many callers are waiting for their turn.
    def crowded?
      @gate.waiting >= CROWD
    end

    # Takes one of the pool's slots for a connection of the manager's own until `widen`, unless all slots have been in
    # use at once before. The block is called once somebody has to wait for a slot.
    def narrow(&)
      return false if cluster?

      @pool.nil? || @gate.narrow(&)
    end

    def widen
      @gate.widen if @pool
    end

    def slots_in_use
      @gate.in_use
    end

    def timeout
      @timeout ||= @library.timeout(@sample)
    end

    def cluster?
      @library.cluster?(@sample)
    end

    def connection(key = nil)
      @library.connection(@sample, key)
    end

    # In a cluster, the name of the node that has the key.
    def server(key)
      Thread.handle_interrupt(NEVER) { @library.server(@sample, key) } if cluster?
    end

    def calls
      @library.calls(@sample)
    end

    # Yields one of the application's connections if one is free, and does not wait, because it may be in use for a long
    # time. Returns whether it yielded.
    def borrow(&)
      return @library.borrow(@sample, &) unless @pool

      is_free = false
      @pool.with(timeout: 0) do |one|
        is_free = true
        @library.borrow(one, &)
      end
    rescue ::ConnectionPool::TimeoutError
      raise if is_free

      false
    end

    private

    def in_turn(sending, &)
      @gate.with do
        next over_pool(sending, &) if @pool

        sending&.call
        yield @sample
      end
    end

    # The pool lets exceptions strike anywhere within its block.
    def over_pool(sending)
      @pool.with do |one|
        Thread.handle_interrupt(NEVER) do
          sending&.call
          yield one
        end
      end
    rescue ::ConnectionPool::TimeoutError => e
      raise ConnectionLost, e.message
    end
  end

  # Calls for keys anywhere in a cluster, over a redis-rb client.
  # @private
  class ClusterCalls
    def initialize(library, redis)
      @library = library
      @redis = redis
    end

    def call(command, _timeout)
      @library.call(@redis, command)
    end

    def pipeline(commands, timeout)
      commands.map do |command|
        call(command, timeout)
      rescue ReplyError, ConnectionLost => e
        e
      end
    end

    def close
      @redis.close
    rescue ::Redis::BaseError, SystemCallError, IOError
      nil
    end
  end
end
