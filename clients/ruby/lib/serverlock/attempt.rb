# frozen_string_literal: true

module Serverlock
  # One attempt to get a lock, with one ID. The caller lets asynchronous exceptions strike only in blocking calls. An
  # attempt ended by such an exception leaves nothing behind.
  # @private
  class Attempt
    PIECE = 5.0
    # A wait that ended at least this many seconds early was ended by somebody.
    SLACK = 0.1
    POLL = (0.05..0.15)
    FIRST_PAUSE = 0.05
    LONGEST_PAUSE = 0.5
    # The longest WAIT with NOTIFY, in milliseconds.
    LONGEST_WAIT_MS = 3_600_000
    # The error codes of a server that rejects NOTIFY, or rejects it on this channel.
    NO_NOTIFY = %w[ERR NOPERM].freeze
    # The attempt ended with the result of a holder, and holds nothing.
    Result = Struct.new(:value)
    # After these a session closes its connection, or uses another one.
    ROLE_CHANGED = %w[READONLY MASTERDOWN LOADING UNBLOCKED].freeze
    MOVED = %w[MOVED ASK CLUSTERDOWN TRYAGAIN].freeze

    def initialize(engine, request)
      @engine = engine
      @request = request
      @id = engine.id
      # Whether the server may hold a lock or a place for this ID.
      @open = false
      # Whether a copy can still run, even though its connection was closed.
      @unanswered = false
      @failure = nil
      @stored = request.takes_result ? StoredResult.new(engine, request) : nil
    end

    # @return [Hold, Result]
    def run
      @began = now
      got = @request.wait.zero? ? at_once : waiting
      given = stored_result(got) || got
    ensure
      unless given
        got.abandon if got.is_a?(Hold)
        @engine.debts.cancel(@request, @id, unanswered: @unanswered) if @open
        leave_connection
      end
    end

    private

    def now
      @engine.clock.now
    end

    def at_once
      tries = 0
      begin
        granted = plain
      rescue ConnectionLost => e
        retry if (tries += 1) < 2
        raise NoServer.new("lock #{@request.name.inspect}: #{e.message}", key: @request.name)
      rescue ReplyError => e
        raise e.for(@request.name)
      end
      granted || refuse(Refused, free? ? "there is nothing to recover: the lock is free" : "somebody else has it")
    end

    # Whether a lock that was to be recovered is free. False if the user may not ask.
    def free?
      return false unless @request.recover

      Request.fields(@engine.server.call(@request.info))["state"] == "free"
    rescue ReplyError, ConnectionLost, Unavailable
      false
    end

    def waiting
      @deadline = @began + @request.wait
      pause = FIRST_PAUSE
      loop do
        raise_if_closed
        begin
          granted = round
          return granted if granted
        rescue ConnectionLost => e
          @failure = e
        rescue ReplyError => e
          raise e.for(@request.name) unless e.again?

          @failure = e
        end
        left = @deadline - now
        timed_out if left <= 0
        next unless @failure

        raise_if_closed
        @engine.clock.sleep([pause * (0.5 + @engine.random.rand), left].min)
        pause = [pause * 2, LONGEST_PAUSE].min
      end
    end

    # Waits in one of several ways. Returns a hold, or nil if another way may now be better.
    def round
      return poll if polls?
      return dedicated(waits: true) if @request.dedicated? && !by_script?
      return blocking if @engine.subscription.refused?

      granted = alone if @engine.lone.ready? && !by_script?
      return granted if granted

      # A call without WAIT would end a wait. With many attempts, two calls for each would take longer than opening the
      # connection.
      unless @engine.subscription.up? || @queued
        granted = plain unless @engine.client.crowded? || @open
        granted ||= alone unless by_script?
        return granted if granted || polls?

        granted = subscribe
        return granted if granted || @engine.subscription.refused? || polls?
      end
      by_notify
    end

    # Subscribes. A release with the script removes attempts whose channel has no subscriber, so they join its queue
    # only once the manager has subscribed. Until then, the attempt asks every second. Returns a hold if it gets one.
    def subscribe
      subscription = @engine.subscription
      subscription.listen(@deadline - now) if @engine.server.module?
      until @engine.server.module? || subscription.up?
        subscription.listen([@deadline - now, Subscription::WHILE_DOWN].min, until_up: true)
        return if subscription.up? || subscription.refused?

        raise_if_closed
        timed_out if now >= @deadline
        granted = plain
        return granted if granted || polls?
      end
    end

    # Whether the module is missing and the script can replace it.
    def by_script?
      @engine.server.module_missing? && !@request.needs_module?
    end

    # Whether there is no queue to wait in.
    def polls?
      by_script? && (!@request.queue? || @engine.server.alone? || @engine.subscription.refused?)
    end

    # Asks without waiting, through the application's client or over a connection that stays with the hold.
    def plain
      return dedicated if @request.dedicated?

      granted = grant { [call(command), false] }
      note_stored unless granted
      granted
    end

    # Call this when the attempt begins to wait.
    def note_stored
      @stored.note if @stored && by_script?
    end

    # The result that was stored while the attempt waited for its lock. Then it does not need the lock.
    def stored_result(hold)
      return unless @stored && hold.is_a?(Hold) && by_script?

      value = @stored.newer
      return unless value

      hold.return_unused
      # A copy without a reply may still get the lock.
      @engine.debts.cancel(@request, @id, unanswered: true) if @unanswered
      Result.new(value)
    end

    def command
      return @request.again(@id) if @request.recover && @open

      # A caller without messages never overtakes a queue, so it would wait forever.
      @request.acquire(@id, alone: @deadline && @engine.subscription.refused?)
    end

    def poll
      plain || rest
    end

    def rest
      @engine.clock.sleep([@engine.random.rand(POLL), [@deadline - now, 0].max].min) if by_script?
      nil
    end

    def blocking
      @engine.blocking.with(@request.keys[0]) { |connection| blocked(connection, Blocking::PIECE) }
    end

    # Waits as the manager's only wait. Returns nil once it is no longer alone.
    def alone
      lone = @engine.lone
      lone.with do
        until lone.over?
          granted = blocked(lone.connection, Lone::PIECE)
          return granted if granted || @engine.server.module_missing?

          timed_out if now >= @deadline
        end
      rescue ConnectionLost
        lone.drop
        raise
      end
    end

    # Blocks on a connection for a piece of the wait. Between pieces the server keeps its place.
    def blocked(connection, longest)
      wait = piece(longest)
      granted = grant { [call(@request.acquire(@id, wait:), connection, wait), true] }
      return granted if granted || @engine.server.module_missing? || now - @sent > (wait / 1000.0) - SLACK

      @open = false
      refuse(Refused, "the wait was cancelled")
    end

    # A piece of the wait in milliseconds, at least one.
    def piece(longest)
      ([@deadline - now, longest].min * 1000).ceil.clamp(1, LONGEST_WAIT_MS)
    end

    def by_notify
      subscription = @engine.subscription
      wait = subscription.register(@request, @id, @deadline) { queued_call }
      granted = first_copy(wait)
      return granted if granted || !@queued

      loop do
        outcome = wait.outcome
        raise_if_closed
        refuse(Refused, "the wait was cancelled") if outcome == :cancelled
        return answered(outcome) if outcome.is_a?(Wait::Reply)
        return leave_queue(wait) if outcome == :subscription_refused && by_script?

        timed_out if now >= @deadline
        subscription.send_again(wait) # the wait timed out by the server's clock, or was unblocked
      end
    ensure
      subscription.forget(wait.id) if wait
    end

    # Gives up the place in the script's queue, in the background. A late cancel must not release a lock that the
    # attempt gets by polling, so the attempt continues with a new ID.
    def leave_queue(wait)
      @engine.subscription.forget(wait.id)
      @engine.debts.cancel(@request, @id, unanswered: @unanswered)
      @id = @engine.id
      @queued = @open = @unanswered = false
      nil
    end

    # The call that joins the queue, and later keeps the place there.
    def queued_call
      @request.acquire(@id, wait: piece(@request.wait), channel: @engine.subscription.channel)
    end

    # Sends the first copy through the application's client; later copies are sent in batches.
    def first_copy(wait)
      if @queued
        @open = true
        @engine.subscription.send_again(wait)
        return
      end
      @queued = true
      reply = @engine.subscription.alone(wait) { call(queued_call) }
      return note_stored if Wait.pause(reply)

      taken(reply)
    rescue ReplyError => e
      not_queued(e)
    end

    # Handles the reply to a later copy.
    def answered(reply)
      @sent = reply.sent
      @failure = nil
      value = reply.value
      @unanswered ||= value.is_a?(ConnectionLost)
      raise value if value.is_a?(ReplyError) || value.is_a?(ConnectionLost)

      taken(value)
    rescue ReplyError => e
      not_queued(e)
    end

    # Returns a hold, or nil if the lock was requested without the queue.
    def taken(reply)
      raise unavailable(reply) if reply.is_a?(Unavailable)
      return not_taken if reply.nil?

      hold = grant { [reply, false] }
      return hold unless @request.dedicated?

      @open = true
      confirmed = dedicated # its token again, over a connection on which it can be confirmed
      confirmed.predecessor = hold.predecessor if confirmed
      confirmed
    end

    def not_taken
      @queued = false
      return rest if by_script?

      refuse(Refused, "the wait was cancelled") if now < @deadline
      @open = false
      nil
    end

    # Call this if the server rejects NOTIFY, or the whole request. In the second case the plain form fails, too. An
    # attempt that may be in the queue does not send it: it has no RESULT, so the attempt would miss the result.
    def not_queued(error)
      raise error unless NO_NOTIFY.include?(error.reply_code) && !error.unknown_command?

      @queued = false
      granted = plain unless @open
      @engine.subscription.refuse unless granted
      granted
    end

    # Asks over a connection that stays with the hold.
    def dedicated(waits: false)
      @connection ||= own_connection
      hold = waits ? blocked(@connection, PIECE) : grant { [call(command, @connection), false] }
      if hold
        @open = true
        confirm(hold)
        @connection = nil
        @open = false
      end
      hold
    rescue ConnectionLost
      leave_connection
      raise
    rescue ReplyError => e
      # Other locks may belong to a session's connection.
      @connection&.connection&.close if @request.session && ROLE_CHANGED.include?(e.reply_code)
      leave_connection if e.again? && (!@request.session || [*ROLE_CHANGED, *MOVED].include?(e.reply_code))
      raise
    end

    def own_connection
      raise_if_closed
      key = @request.keys[0]
      @request.session ? @engine.sessions.take(self, key) : @engine.client.connection(key)
    end

    def leave_connection
      connection = @connection
      @connection = nil
      return unless connection

      Thread.handle_interrupt(NEVER) { @request.session ? @engine.sessions.give_back(connection) : connection.close }
    end

    # WAIT and WAITAOF, right after the grant.
    def confirm(hold)
      replicas = @request.replicas || 0
      within = @request.replicas_within_ms
      words = @request.fsync ? ["waitaof", 1, replicas, within] : ["wait", replicas, within]
      if @request.replicas || @request.fsync
        reply = @connection.call(words, @engine.patience + (within / 1000.0))
        local, copies = @request.fsync ? reply : [1, reply]
        unless local >= 1 && copies >= replicas
          raise Unavailable.new("lock #{@request.name.inspect}: #{copies} of #{replicas} replicas have it" \
                                "#{', and it is not on disk' if local < 1}", key: @request.name)
        end
      end
      @request.session ? @engine.sessions.pass(@connection, hold) : @connection.close
    rescue ReplyError => e
      raise Unavailable.new("lock #{@request.name.inspect}: #{e.message}", key: @request.name)
    end

    # Sends a copy, and returns the reply.
    def call(command, connection = nil, wait = 0)
      was_open = @open
      @open = true
      timeout = connection && (@engine.patience + (wait / 1000.0))
      reply = @engine.server.call(command, connection:, timeout:) { @sent = now }
      answered = true
      @failure = nil
      reply
    rescue ReplyError
      answered = true
      @open = was_open
      raise
    rescue Unavailable => e
      answered = true
      @open = was_open
      return if @engine.server.portable? && !@request.needs_module? # the module was unloaded

      raise unavailable(e)
    ensure
      @unanswered = true unless answered
    end

    def unavailable(error)
      Unavailable.new("lock #{@request.name.inspect}: #{error.message}", key: @request.name)
    end

    # Returns a hold for a grant, a {Result}, or nil. A lease that expired before the caller could find out about
    # it is treated as a lost reply.
    def grant
      reply, waits = yield
      if reply.nil?
        @open = false unless waits
        return
      end
      return Result.new(reply[0].b) if @request.takes_result && reply.is_a?(Array) && reply.size == 1

      hold = Hold.new(@engine, @request, @id, reply, @sent)
      # A slow reply leaves little of the lease, so a first EXTEND starts a new one.
      hold.extend_now if now - @sent > @request.lease / 3
      @open = false
      return hold if hold.held?

      hold.abandon
      raise ConnectionLost, "its lease expired before the reply arrived"
    end

    def refuse(kind, why)
      raise kind.new("lock #{@request.name.inspect}: #{why}", key: @request.name)
    end

    def timed_out
      refuse(NoServer, @failure.message) if @failure.is_a?(ConnectionLost)
      refuse(TimedOut, @failure ? @failure.message : "somebody else still has it after #{@request.wait} s")
    end

    def raise_if_closed
      refuse(Misuse, "its manager is closed") if @engine.closed?
    end
  end
end
