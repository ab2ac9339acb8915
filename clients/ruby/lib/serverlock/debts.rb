# frozen_string_literal: true

module Serverlock
  # Releases locks and gives up places in queues where callers could not. Tries over its own connection until the server
  # replies or the lease would have expired.
  # @private
  class Debts
    include Locking

    # `command` releases a lock; nil for an attempt, which has `request` and `id`. `twice`: the attempt is cancelled
    # again. `keep`: a {Keep}; `twice` then means that it is sent again.
    Debt = Struct.new(:command, :request, :id, :until, :next_at, :pause, :twice, :keep)
    # A copy without a reply may still run after it was cancelled: unlike the module, a script does not block its ID.
    ONCE_MORE = 2.0
    FIRST_PAUSE = 0.05
    LONGEST_PAUSE = 1.0
    IDLE = 10.0

    def initialize(engine)
      @engine = engine
      @mutex = Mutex.new
      @changed = engine.clock.condition
      @debts = []
      @thread = nil
    end

    def size
      @debts.size
    end

    # Never fails, and is never interrupted. `unanswered`: a copy's connection was closed before its reply.
    def cancel(request, id, unanswered: false)
      add(Debt.new(nil, request, id, @engine.clock.now + request.lease, 0.0, FIRST_PAUSE, unanswered))
    end

    def release(hold, at = 0.0)
      add(Debt.new(hold.release_command, nil, nil, [@engine.clock.now, at].max + hold.lease_s, at, FIRST_PAUSE))
    end

    def keep(keep, after:, again:)
      add(Debt.new(nil, nil, nil, keep.ends, @engine.clock.now + after, FIRST_PAUSE, again, keep))
    end

    private

    def add(debt)
      locked do
        @debts << debt
        @thread ||= @engine.thread("debts") { work }
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
          debt.twice = true if debt.keep
          @engine.say("a background command failed: #{e.full_message(highlight: false)}") unless e.is_a?(ConnectionLost)
          connection&.close
          connection = nil
        end
        @mutex.synchronize { finish(debt, done) }
      end
    end

    def finish(debt, done)
      now = @engine.clock.now
      if done && debt.twice && (debt.keep || @engine.server.module_missing?)
        debt.twice = false
        debt.next_at = now + ONCE_MORE
        debt.until = debt.next_at + debt.request.lease unless debt.keep
        @debts.delete_if { |other| other.equal?(debt) } if debt.next_at > debt.until
      elsif done || now > debt.until
        @debts.delete_if { |other| other.equal?(debt) }
      else
        debt.next_at = now + debt.pause
        debt.pause = [debt.pause * 2, LONGEST_PAUSE].min
      end
    end

    # The next debt that is due; :idle after a while with no debts.
    def following
      @mutex.synchronize do
        loop do
          now = @engine.clock.now
          debt = @debts.min_by(&:next_at)
          return debt if debt && debt.next_at <= now

          before = @debts.size
          @changed.wait(@mutex, debt ? [debt.next_at - now, IDLE].min : IDLE)
          return :idle if before.zero? && @debts.empty?
        end
      end
    end

    # Whether the debt is settled.
    def settle(debt, connection)
      patience = @engine.patience
      if debt.keep
        debt.keep.settle(connection, patience)
      elsif debt.command
        send_over(debt.command, connection, patience)
      elsif @engine.server.module_missing?
        by_script(debt, connection, patience)
      else
        by_module(debt, connection, patience)
      end
      true
    rescue Unavailable
      true
    rescue ReplyError => e
      !e.again?
    end

    def by_module(debt, connection, patience)
      debt.request.keys.map { |key| connection.call(["lock.cancel", key, debt.id], patience) }
    rescue ReplyError => e
      raise unless e.unknown_command?

      by_script(debt, connection, patience)
    end

    def by_script(debt, connection, patience)
      return if debt.request.needs_module?

      if debt.request.queue? && !@engine.server.alone?
        begin
          return send_over(debt.request.cancel(debt.id, @engine.subscription.channel), connection, patience)
        rescue ReplyError => e
          raise unless e.reply_code == "NOPERM"
        end
      end
      # Without a queue there is no cancel, but the same ID gets its token again.
      token = send_over(debt.request.found(debt.id), connection, patience)
      send_over(debt.request.release(token), connection, patience) if token
    end

    def send_over(command, connection, patience)
      @engine.server.call(command, connection:, timeout: patience)
    end
  end
end
