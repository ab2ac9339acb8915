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

  # Watches session connections. The end of one is reported as a loss at once.
  # @private
  class Watcher
    ASK_EVERY = 1.0

    def initialize(engine)
      @engine = engine
      @mutex = Mutex.new
      @holds = {}.compare_by_identity
      @thread = nil
    end

    def add(hold)
      @mutex.synchronize do
        @holds[hold] = hold.connection.socket
        unless @thread
          @reader, @writer = IO.pipe
          @thread = @engine.thread("sessions") { work }
        end
        @writer.write_nonblock("+", exception: false)
      end
    end

    def remove(hold)
      @mutex.synchronize do
        @holds.delete(hold)
        @writer&.write_nonblock("-", exception: false)
      end
    end

    private

    def work
      loop do
        holds = @mutex.synchronize { @holds.dup }
        sockets = holds.values.compact.reject(&:closed?)
        ready, = IO.select([@reader, *sockets], nil, nil, holds.value?(nil) ? ASK_EVERY : nil)
        @reader.read_nonblock(1000, exception: false) if ready&.include?(@reader)
        holds.each { |hold, socket| look(hold) if socket.nil? || socket.closed? || ready&.include?(socket) }
      rescue IOError, Errno::EBADF
        next # a connection has been closed
      end
    end

    # Something arrived on a connection without a pending command: its end, or a TLS message.
    def look(hold)
      return unless hold.held?
      raise ConnectionLost, "closed" unless hold.connection.connected?

      hold.connection.call(["ping"], @engine.patience)
    rescue ReplyError, ConnectionLost => e
      hold.lose("its connection has ended: #{e.message}")
    end
  end
end
