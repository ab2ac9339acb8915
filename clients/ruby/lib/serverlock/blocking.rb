# frozen_string_literal: true

module Serverlock
  # Connections for attempts that block: because the server rejects NOTIFY, or because they need a dedicated connection.
  # @private
  class Blocking
    CONNECTIONS = 8
    PIECE = 2.0

    def initialize(engine)
      @engine = engine
      @gate = Gate.new(CONNECTIONS)
      @idle = Thread::Queue.new
    end

    def in_use
      @gate.in_use
    end

    # Yields one of a few connections, once one is free.
    def with(key)
      @gate.with do
        connection = @engine.client.cluster? ? @engine.client.connection(key) : kept
        result = Thread.handle_interrupt(ON_BLOCKING) { yield connection }
        keep(connection)
        connection = nil
        result
      ensure
        connection&.close
      end
    end

    def close
      @idle.pop(true).close until @idle.empty?
    rescue ThreadError
      nil
    end

    private

    def kept
      @idle.pop(true)
    rescue ThreadError
      @engine.client.connection
    end

    def keep(connection)
      return connection.close if @engine.closed? || @engine.client.cluster?

      @idle << connection
    end
  end
end
