# frozen_string_literal: true

module Serverlock
  # One attempt that waits with NOTIFY. Its thread sleeps until this attempt has an outcome; other threads send its
  # copies. `Subscription` guards everything but the outcome with its mutex.
  # @private
  class Wait
    include Locking

    # The reply to a copy, a grant or an error, and the time the copy was sent.
    Reply = Struct.new(:value, :sent)

    # Seconds until the next copy if there is no news; nil if the reply does not confirm the attempt's place.
    def self.pause(reply)
      return Subscription::NO_NEWS if reply == "WAITING"

      # From the script. A result is an array of one.
      reply[1] / 1000.0 if reply.is_a?(Array) && reply.size == 2 && reply[0] == "WAITING"
    end

    attr_reader :clock, :request, :id, :call, :ends
    # `asks`: a copy is on its way; `turn`: the next copy claims a grant; `over`: no more copies may be sent; `gone`:
    # the caller has left.
    attr_accessor :resend_at, :looked_at, :asks, :turn, :over, :gone

    def initialize(subscription, clock, request, id, ends, call)
      @subscription = subscription
      @clock = clock
      @request = request
      @id = id
      @ends = ends
      @call = call
      @mutex = Mutex.new
      @changed = clock.condition
      @outcome = nil
    end

    # `outcome` is a {Reply}, or the word of a message, which never replaces a reply.
    def finish(outcome)
      @mutex.synchronize do
        next if @outcome.is_a?(Reply)

        @outcome = outcome
        @changed.signal
      end
    end

    # Waits for the outcome until the wait ends; nil if there is none. The caller has masked exceptions.
    def outcome
      locked do
        while @outcome.nil? && (left = @ends - @clock.now).positive?
          Thread.handle_interrupt(ON_BLOCKING) { @changed.wait(@mutex, left) }
        end
        outcome = @outcome
        @outcome = nil
        outcome
      end
    end

    def due_at
      [@resend_at, @ends].min
    end

    # For the timer.
    def look(now, due)
      @subscription.keep_place(self, now, due)
    end
  end

  # A copy of an attempt, for {Renewals}.
  # @private
  class Copy
    def initialize(subscription, wait)
      @subscription = subscription
      @wait = wait
    end

    def gone?
      @wait.over || @wait.gone
    end

    def renewal
      @was_turn = @wait.turn
      @wait.turn = false
      @sent = @wait.clock.now
      @wait.call.call
    end

    def lease_s
      Float::INFINITY
    end

    def renewed(reply)
      @subscription.answer(@wait, reply, @sent, @was_turn)
    end

    def not_renewed
      renewed(ConnectionLost.new("no reply in time"))
    end
  end
end
