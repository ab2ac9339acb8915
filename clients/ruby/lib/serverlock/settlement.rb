# frozen_string_literal: true

module Serverlock
  # Gives back what callers could not: over a connection of its own, until it is answered or the lease would be over.
  # @private
  class Settlement
    include Locking

    # `command`: what gives it back. `request` and `id`: of an attempt; nil for a hold.
    Debt = Struct.new(:command, :request, :id, :until, :next_at, :pause)
    FIRST_PAUSE = 0.05
    LONGEST_PAUSE = 1.0
    IDLE = 10.0

    def initialize(engine)
      @engine = engine
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @debts = []
      @thread = nil
    end

    def size
      @debts.size
    end

    # Never fails, and is never interrupted.
    def cancel(request, id)
      add(Debt.new(nil, request, id, Clock.now + request.lease, 0.0, FIRST_PAUSE))
    end

    def release(hold, at = 0.0)
      add(Debt.new(hold.request.release(hold.token), hold.request, nil, [Clock.now, at].max + hold.lease_s, at, FIRST_PAUSE))
    end

    private

    def add(debt)
      locked do
        @debts << debt
        @thread ||= @engine.thread("settlement") { work }
        @changed.signal
      end
    end

    def work
      connection = nil
      while (debt = following)
        if debt == :idle
          connection&.close
          connection = nil
          next
        end
        begin
          connection ||= @engine.client.calls
          done = settle(debt, connection)
        rescue StandardError => e
          @engine.say("giving back failed: #{e.full_message(highlight: false)}") unless e.is_a?(ConnectionLost)
          connection&.close
          connection = nil
        end
        @mutex.synchronize { finish(debt, done) }
      end
    end

    def finish(debt, done)
      now = Clock.now
      if done || now > debt.until
        @debts.delete_if { |other| other.equal?(debt) }
      else
        debt.next_at = now + debt.pause
        debt.pause = [debt.pause * 2, LONGEST_PAUSE].min
      end
    end

    # The next debt that is due; :idle after a while without any.
    def following
      @mutex.synchronize do
        loop do
          now = Clock.now
          debt = @debts.min_by(&:next_at)
          return debt if debt && debt.next_at <= now

          before = @debts.size
          @changed.wait(@mutex, debt ? [debt.next_at - now, IDLE].min : IDLE)
          return :idle if before.zero? && @debts.empty?
        end
      end
    end

    # Whether that is done with.
    def settle(debt, connection)
      patience = @engine.patience
      return settle_hold(debt, connection, patience) unless debt.id

      begin
        debt.request.keys.map { |key| connection.call(["lock.cancel", key, debt.id], patience) }
        true
      rescue ReplyError => e
        return !e.again? unless e.unknown_command?
        return true if debt.request.needs_module?

        by_script(debt, connection, patience)
      end
    end

    def settle_hold(debt, connection, patience)
      @engine.server.call(debt.command, needs_module: debt.request.needs_module?, connection:, timeout: patience)
      true
    rescue Unavailable
      true
    rescue ReplyError => e
      !e.again?
    end

    # A script cannot cancel, but the same ID gets its token again.
    def by_script(debt, connection, patience)
      reply = @engine.server.call(debt.request.again(debt.id), connection:, timeout: patience)
      token = reply.is_a?(Array) ? reply[0] : reply
      @engine.server.call(debt.request.release(token), connection:, timeout: patience) if token
      true
    rescue ReplyError => e
      !e.again?
    end
  end
end
