# frozen_string_literal: true

module Serverlock
  # The EXTEND that keeps the lock of a hold that has ended, so that the lock's lease ends at a given moment of {Clock}.
  # No RELEASE follows.
  # @private
  class Keep
    # The server counts the lease from when it runs the EXTEND, so one that takes longer than this is sent again.
    LATE = 0.25
    # By then, a copy whose connection was closed has been run or never will be.
    LATE_COPY = 2.0
    PAUSE = 0.02
    LONGEST_PAUSE = 0.2

    attr_reader :ends

    def initialize(hold, ends)
      @hold = hold
      @ends = ends
      @engine = hold.engine
    end

    # Tries for as long as a call may take, then continues in the background; even if its caller is interrupted. The
    # hold has ended. @return [Boolean] whether the lock was still held
    def run
      held = now_or_later
      is_over = true
      held
    rescue Error
      is_over = true
      raise
    ensure
      Thread.handle_interrupt(NEVER) { owe } unless is_over
    end

    # Continues in the background. `again`: once more after LATE_COPY, because an earlier copy may still run.
    def owe(after: 0.0, again: true)
      @engine.debts.keep(self, after:, again:) if now + after < @ends
    end

    # Sends the EXTEND in the background. @raise [ReplyError, ConnectionLost, Unavailable]
    def settle(connection, timeout)
      return unless extend_lock(connection, timeout).zero?

      @engine.say("the lock #{name.inspect} ended before it could be kept for its period")
    rescue Unavailable => e
      not_kept(e)
    rescue ReplyError => e
      raise if e.again?

      not_kept(e)
    end

    private

    def now
      @engine.clock.now
    end

    def name
      @hold.request.name
    end

    def not_kept(error)
      @engine.say("the lock #{name.inspect} could not be kept for its period: #{error.message}")
    end

    def now_or_later
      deadline = now + @engine.patience
      # A renewal that the server runs after this EXTEND would shorten the lease.
      is_unsure = !@hold.await_idle(deadline)
      pause = PAUSE
      loop do
        reply = try(deadline)
        return true if reply == :later

        if reply
          owe(after: LATE_COPY, again: false) if reply == 1 && is_unsure
          return reply == 1
        end
        is_unsure = true
        @engine.clock.sleep(pause)
        pause = [pause * 2, LONGEST_PAUSE].min
      end
    end

    # Returns the reply, nil if it has to be tried again, or :later if it is tried in the background.
    def try(deadline)
      extend_lock(nil, nil)
    rescue ReplyError, ConnectionLost => e
      raise e.for(name) if e.is_a?(ReplyError) && !e.again?
      return if now < deadline

      owe
      @engine.say("the lock #{name.inspect} is kept for its period in the background: #{e.message}")
      :later
    end

    def extend_lock(connection, timeout)
      reply = nil
      3.times do
        sent = now
        command = @hold.request.extend(@hold.token, [((@ends - sent) * 1000).ceil, 1].max)
        reply = @engine.server.call(command, connection:, timeout:)
        break unless reply == 1 && now > sent + LATE
      end
      reply
    end
  end
end
