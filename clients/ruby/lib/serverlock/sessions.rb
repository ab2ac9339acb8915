# frozen_string_literal: true

module Serverlock
  # A connection that session locks belong to. One user at a time sends commands over it.
  # @private
  class Session
    attr_reader :connection, :caller, :server, :pending_until
    # `user`: an attempt, or its new hold; READING: the watching thread; nil: nobody. `over`: no longer in use.
    attr_accessor :user, :holds, :over

    def initialize(connection, caller, server, user)
      @connection = connection
      @caller = caller
      @server = server
      @user = user
      @holds = []
      @over = false
      @pending_until = nil
    end

    # Sends one command. If an exception strikes while it waits, a connection that other locks belong to stays open:
    # `settle` reads the reply later.
    def call(words, timeout)
      return @connection.call(words, timeout) if @holds.empty? || @connection.stream.nil?

      Thread.handle_interrupt(NEVER) do
        @pending_until = Clock.now + timeout
        @connection.write(words)
      end
      unless @connection.reply?(timeout)
        @connection.close
        raise ConnectionLost, "no reply within #{timeout.round(1)} s"
      end
      Thread.handle_interrupt(NEVER) { receive }
    end

    # Whether a reply is still to be read.
    def pending?
      !@pending_until.nil? && @connection.connected?
    end

    def overdue?(now)
      !(ends = @pending_until).nil? && now >= ends
    end

    # Reads the reply that an interrupted attempt left. Closes the connection if it has ended, or the reply is overdue.
    def settle(patience)
      if @connection.stream.nil?
        @connection.call(["ping"], patience) if @connection.connected?
      elsif @connection.reply?(0)
        # Without a command, nothing arrives but the end.
        pending? ? receive : @connection.close
      elsif overdue?(Clock.now)
        @connection.close
      end
    rescue ReplyError
      nil
    rescue StandardError # another thread may have closed it in the meantime
      @connection.close
    end

    private

    def receive
      @connection.read
    ensure
      @pending_until = nil
    end
  end

  # The connections of session locks. Those of one caller share one, so the server sees a client that holds one lock and
  # waits for another, and finds deadlocks.
  #
  # While an attempt uses a connection, another attempt by the same caller gets a new one. A connection is closed with
  # its last hold. A thread watches the connections that no attempt uses: when one ends, its locks are lost at once.
  # @private
  class Sessions
    include Locking

    READING = :reading
    # Where the library's driver does not expose the socket.
    ASK_EVERY = 1.0

    def initialize(engine)
      @engine = engine
      @mutex = Mutex.new
      @sessions = []
      @thread = nil
    end

    def size
      @sessions.size
    end

    # The caller's session, or a new one. Its user calls `pass` or `give_back`.
    def take(user, key)
      caller = Scopes.caller
      server = @engine.client.server(key)
      locked { free(caller, server)&.tap { |session| session.user = user } } || opened(user, caller, server, key)
    end

    # The attempt that uses the session has got a hold.
    def pass(session, hold)
      hold.session = session
      session.user = hold
    end

    # Shares and watches the session of a new hold.
    def keep(hold)
      session = hold.session
      is_over = locked do
        session.holds << hold
        session.user = nil
        watch
        session.over
      end
      finish(session, [hold]) if is_over
    end

    # Ends the use of a session by an attempt without a hold. The caller has masked all exceptions.
    def give_back(session)
      holds = locked do
        next retire(session) if session.over || session.holds.empty? || !session.connection.connected?

        session.user = session.pending? ? READING : nil
        watch
        nil
      end
      finish(session, holds) if holds
    end

    # Removes a hold that has ended. May be called again.
    def drop(hold)
      session = hold.session
      holds = locked do
        session.holds.delete_if { |other| other.equal?(hold) }
        session.user = nil if session.user.equal?(hold)
        retire(session) if session.holds.empty? && watched?(session)
      end
      finish(session, holds) if holds
    end

    # Ends the attempts that are waiting, and the sessions where a reply is still to be read: nobody would read it.
    def close
      used = locked { @sessions.select(&:user).map { |session| [session, retire(session)] } }
      used.each do |session, holds|
        session.connection.shutdown # its user closes it
        watched?(session) ? finish(session, holds) : lose(holds)
      end
    end

    private

    def free(caller, server)
      @sessions.find do |session|
        session.user.nil? && session.caller.equal?(caller) && session.server == server && session.connection.connected?
      end
    end

    def opened(user, caller, server, key)
      session = Session.new(@engine.client.connection(key), caller, server, user)
      locked { @sessions << session }
      session
    end

    # Whether the thread watches the session, and no attempt uses it.
    def watched?(session)
      session.user.nil? || session.user == READING
    end

    # Called with the mutex locked. Returns the session's holds, which the caller loses.
    def retire(session)
      session.over = true
      @sessions.delete(session)
      wake
      session.holds.tap { session.holds = [] }
    end

    def finish(session, holds)
      session.connection.close
      lose(holds)
    end

    def lose(holds)
      holds.each { |hold| hold.lose("its connection has ended") }
    end

    # Called with the mutex locked.
    def watch
      unless @thread
        @reader, @writer = IO.pipe
        @thread = @engine.thread("sessions") { work }
      end
      wake
    end

    def wake
      @writer&.write_nonblock("+", exception: false)
    end

    def work
      loop do
        watched = locked { @sessions.select { |session| watched?(session) } }
        sockets = watched.to_h { |session| [session, session.connection.socket] }.compare_by_identity
        ready = @engine.clock.select([@reader, *sockets.values.compact.reject(&:closed?)], pause(sockets))
        @reader.read_nonblock(1000, exception: false) if ready&.include?(@reader)
        ready = (ready || []).to_h { |io| [io, true] }.compare_by_identity
        now = Clock.now
        sockets.each do |session, socket|
          look(session) if socket.nil? || socket.closed? || ready[socket] || session.overdue?(now)
        end
      rescue IOError, Errno::EBADF
        next # a connection has been closed
      end
    end

    # How long the thread may sleep; nil: until something happens.
    def pause(sockets)
      [*(ASK_EVERY if sockets.value?(nil)),
       *sockets.keys.filter_map(&:pending_until).map { |at| [at - Clock.now, 0.0].max }].min
    end

    def look(session)
      is_claimed = locked { session.user = READING if !session.over && watched?(session) }
      return unless is_claimed

      session.settle(@engine.patience)
      holds = locked do
        session.user = nil unless session.pending?
        retire(session) unless session.connection.connected?
      end
      finish(session, holds) if holds
    end
  end
end
