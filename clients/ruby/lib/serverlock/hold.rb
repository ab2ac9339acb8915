# frozen_string_literal: true

require "weakref"

module Serverlock
  # The manager's record of a held lock. Users get a {Held}.
  # @private
  class Hold
    # The argument of hooks. Times are seconds.
    Event = Struct.new(:key, :waited, :held)

    attr_reader :engine, :request, :id, :token, :lease, :lease_s, :reason, :granted_at, :answered_at
    # `result`: what a release gives to the attempts that wait for one.
    attr_accessor :session, :renews, :looked_at, :predecessor, :scope, :result, :watching

    def initialize(engine, request, id, reply, from)
      @engine = engine
      @request = request
      @id = id
      @token, overdue, *before = reply
      @predecessor = Predecessor.new(before[0], before[1], overdue / 1000.0) if overdue
      # The server granted it between these two moments.
      @granted_at = from
      @answered_at = @engine.clock.now
      @failed_at = -Float::INFINITY
      @lease_s = request.lease
      @lease = Lease.new(from, @lease_s)
      @mutex = Mutex.new
      @entries = 1 # calls of `acquire` that no `release` has followed
      @state = :held
      @renewing = nil
      @renews = true
      @told = request.on_lost ? [request.on_lost] : nil
    end

    # A hold on a lock that was granted to somebody else.
    def held_by(held)
      @held = held
      self
    end

    # @return [Held, nil] nil once nothing references it
    def held
      @held.is_a?(WeakRef) ? @held.weakref_alive? && @held.__getobj__ : @held
    rescue WeakRef::RefError
      nil
    end

    def held?
      @state == :held && @engine.clock.now < @lease.lost_at && Process.pid == @engine.fork
    end

    # Seconds until the lock counts as lost.
    def left
      held? ? [@lease.lost_at - @engine.clock.now, 0.0].max : 0.0
    end

    def check
      return left_or_lose if @state == :held && Process.pid == @engine.fork

      why = { released: "it was released", held: "it belongs to the parent of this process" }.fetch(@state, @reason)
      raise lost(why)
    end

    def lost(why = @reason)
      Lost.new("the lock #{@request.name.inspect} is lost: #{why}", key: @request.name)
    end

    def verify
      check
      from = @engine.clock.now
      left = @request.checks(@token).map { |command| ask(command) }.min
      lose("the server says so") unless left.positive?
      check
      [@lease.lost_at - @engine.clock.now, from + (left / 1000.0) - @engine.clock.now].min
    end

    def fenced(words)
      check
      @engine.server.fenced(@request.keys, @token, words)
    rescue ReplyError => e
      raise named(e) unless e.message.start_with?("LOST ")

      lose("the server says so")
      raise lost
    rescue ConnectionLost => e
      raise NoServer.new("lock #{@request.name.inspect}: #{e.message}", key: @request.name)
    end

    # Sets a new lease, counted from now, in the caller's thread.
    def extend(lease_ms = nil)
      check
      @lease_s = lease_ms / 1000.0 if lease_ms
      tries = 0
      begin
        change = nil
        reply = @engine.server.call(extension) { change = sending(change) }
        took(change, reply)
      rescue ConnectionLost => e
        unanswered(change) if change
        retry if (tries += 1) < 2
        raise NoServer.new("lock #{@request.name.inspect}: #{e.message}", key: @request.name)
      rescue ReplyError => e
        @lease.refused(change)
        raise named(e)
      rescue Exception # rubocop:disable Lint/RescueException
        unanswered(change) if change
        raise
      end
      @engine.timer.schedule(self) # the lease may be shorter
      check
    end

    # The same for a grant that the caller does not have yet: a loss ends the hold without being reported.
    def extend_now
      change = nil
      reply = @engine.server.call(extension) { change ||= @lease.sent(@engine.clock.now, @lease_s) }
      return @lease.confirmed(change) if reply == 1

      @state = :ended
    rescue ConnectionLost
      unanswered(change) if change
    rescue ReplyError
      @lease.refused(change)
    end

    # When the timer must check the hold.
    def due_at
      @lease.due_at
    end

    # For the timer: adds what is due now, and returns the time of the next look.
    def look(now, due)
      return Float::INFINITY unless @state == :held

      # Until its first look, the timer keeps the hold alive, so a hold that ends sooner needs no weak reference.
      if @held && !@held.is_a?(WeakRef)
        @held = WeakRef.new(@held)
      elsif @held && !@held.weakref_alive?
        drop
        @watching&.ended(:expired)
        return Float::INFINITY
      end
      if now >= @lease.lost_at
        lose("its lease has expired")
        return Float::INFINITY
      end
      return @lease.lost_at if @renewing || !renews?(now)

      if now >= @lease.due_at
        @renewing = true
        due << self
        return @lease.lost_at
      end
      [@lease.due_at, @lease.lost_at].min
    end

    def gone?
      @state != :held
    end

    # The command for a renewal that is sent now; nil if the hold has ended.
    def renewal
      @mutex.synchronize do
        next unless @state == :held

        @renewing = @lease.sent(@engine.clock.now, @lease_s)
        extension
      end
    end

    def renewed(reply)
      change = @renewing
      case reply
      when ReplyError, Unavailable
        @lease.refused(change)
        @lease.retry_at(@engine.clock.now)
      when Exception
        unanswered(change)
        @lease.retry_at(@engine.clock.now)
      else
        took(change, reply)
      end
      reschedule
    end

    def not_renewed
      unanswered(@renewing) if @renewing.is_a?(Array)
      @lease.retry_at(@engine.clock.now)
      reschedule
    end

    # Notices the loss, once.
    def lose(why)
      told = @mutex.synchronize do
        return unless @state == :held

        @state = :lost
        @reason = why
        @body&.interrupt(lost)
        @told || []
      end
      leave
      leave_session
      held = self.held
      told.each { |callback| @engine.callbacks.run(callback, held) } if held
      @engine.tell(:on_lost) { event }
      @watching&.ended(:lost, lost)
    end

    def on_lost(&callback)
      late = @mutex.synchronize do
        (@told ||= []) << callback
        @state == :lost
      end
      @engine.callbacks.run(callback, @held.is_a?(WeakRef) ? @held.__getobj__ : @held) if late
    end

    # The body of the scope, which a loss interrupts.
    def body=(body)
      @mutex.synchronize { @body = body }
    end

    # Counts one more `acquire`. Returns false if the hold has ended.
    def enter_again
      @mutex.synchronize { held? && @entries += 1 }
    end

    # Whether this `release` belongs to a repeated `acquire`, so that the lock stays held.
    def leave_again
      @mutex.synchronize { @entries > 1 && !released? && @entries -= 1 }
    end

    # Releases the lock. `entirely`: even if its caller acquired it several times.
    # @return [Boolean] whether it was held to the end
    def release(entirely: false)
      return false if Process.pid != @engine.fork
      return held? if !entirely && leave_again

      before = @mutex.synchronize do
        before = @state
        raise Misuse.new("the lock #{@request.name.inspect} was already released", key: @request.name) if
          %i[released ended].include?(before)

        @state = before == :lost ? :ended : :released
        before
      end
      return settle && false if before == :lost

      leave
      ending do
        held = @engine.clock.now < @lease.lost_at
        rest = @request.at_least ? @granted_at + @request.at_least - @engine.clock.now : 0.0
        (rest.positive? ? keep(rest) : give_back(held)) && held
      end
    ensure
      leave_session if before
    end

    # Ends the hold, but its lock stays until then. If that time has passed, the lock is released. `is_long`: its
    # lease already ends then. @return [Boolean] whether it was held to the end
    def keep_until(ends, is_long:)
      return release if @engine.clock.now >= ends || !end_kept

      ending { is_long || Keep.new(self, ends).run }
    end

    # Ends the hold if it still lasts, and keeps its lock in the background.
    def keep_later(ends)
      ending { Keep.new(self, ends).owe || true } if end_kept
    end

    # Waits until no EXTEND is on its way. Returns whether the server can no longer run an earlier one. After the hold
    # has ended, no more are sent.
    def await_idle(deadline)
      sleep(0.005) while @lease.changing? && @engine.clock.now < deadline
      !@lease.changing? && @engine.clock.now >= @failed_at + Keep::LATE_COPY
    end

    # Releases a lock that the caller never got.
    def abandon
      @state = :ended
      @watching&.ended(:released)
      leave
      settle
      leave_session
    end

    # Releases a lock that the caller does not need, because its attempt ended with a result.
    def return_unused
      @state = :ended
      give_back(true)
    rescue Error
      nil # it expires
    end

    # The command that releases the lock.
    def release_command
      @request.release(@token, @result)
    end

    def released?
      @state == :released || @state == :ended
    end

    def event(waited = nil)
      Event.new(@request.name, waited, @engine.clock.now - @granted_at)
    end

    private

    # Reports the end of the hold. The block returns whether it was held to the end.
    def ending
      held = true
      held = yield
      @engine.tell(held ? :on_released : :on_lost) { event }
      held
    rescue Error
      held = false
      raise
    ensure
      held ? @watching&.ended(:released) : @watching&.ended(:lost, lost(@reason || "it ended before its release"))
    end

    def extension
      @request.extend(@token, (@lease_s * 1000).round)
    end

    # Whether the hold lasted until now. From now on it is neither renewed nor lost.
    def end_kept
      lasts = Thread.handle_interrupt(NEVER) do
        @mutex.synchronize { held? && @state = :released }
      end
      leave if lasts
      lasts
    end

    # Call this right before an EXTEND is sent.
    def sending(change)
      @mutex.synchronize do
        raise lost(@reason || "it was released") unless @state == :held

        change || @lease.sent(@engine.clock.now, @lease_s)
      end
    end

    def unanswered(change)
      @failed_at = @engine.clock.now
      @lease.unanswered(change)
    end

    def left_or_lose
      left = @lease.lost_at - @engine.clock.now
      return left if left.positive?

      lose("its lease has expired")
      raise lost
    end

    def renews?(now)
      @renews && !@engine.closed? && (@request.max_hold.nil? || now < @granted_at + @request.max_hold)
    end

    def reschedule
      @renewing = nil
      @engine.timer.schedule(self) if @state == :held
    end

    def took(change, reply)
      if reply == 1
        @lease.confirmed(change)
      else
        @lease.refused(change)
        lose("the server says so")
      end
    end

    def drop
      leave
      leave_session
    end

    def leave
      @scope&.leave
      @engine.timer.remove(self)
    end

    def leave_session
      @engine.sessions.drop(self) if @session
    end

    def settle
      @engine.debts.release(self)
      true
    end

    # Sends RELEASE, at most twice. If no reply comes, the lock is released in the background.
    def give_back(held)
      settled = false
      tries = 0
      begin
        reply = @engine.server.call(release_command)
        settled = true
        return reply == @request.keys.size if @request.several? && !(reply.zero? && tries.positive?)
        return true if reply == 1

        reply.zero? && tries.positive? && held
      rescue ConnectionLost
        retry if (tries += 1) < 2
        true
      rescue ReplyError => e
        settled = !e.again?
        raise named(e) if settled

        true
      ensure
        settle unless settled
      end
    end

    # Keeps the lock until `at_least` has passed, even if this process ends before that.
    def keep(rest)
      ends = @engine.clock.now + rest
      @engine.debts.release(self, ends)
      tries = 0
      begin
        reply = @engine.server.call(@request.extend(@token, [((ends - @engine.clock.now) * 1000).ceil, 1].max))
        reply == 1
      rescue ConnectionLost
        retry if (tries += 1) < 2
        true
      rescue ReplyError => e
        e.again?
      end
    end

    def ask(command)
      tries = 0
      begin
        @engine.server.call(command)
      rescue ConnectionLost => e
        retry if (tries += 1) < 2
        raise NoServer.new("lock #{@request.name.inspect}: #{e.message}", key: @request.name)
      rescue ReplyError => e
        raise named(e)
      end
    end

    def named(error)
      error.for(@request.name)
    end
  end

  # The last holder of an expired lock. `overdue`: seconds since it expired.
  Predecessor = Struct.new(:token, :owner, :overdue)
end
