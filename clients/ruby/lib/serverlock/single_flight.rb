# frozen_string_literal: true

module Serverlock
  # One call for a result that many callers need.
  # @private
  class SingleFlight
    def initialize(locks, request)
      @locks = locks
      @request = request
    end

    # Returns the value of the block, or that of the caller whose result came first.
    def run(&)
      flights = @locks.engine.flights
      caller = flights.caller(@request)
      outcome = nil
      begin
        Thread.handle_interrupt(ON_BLOCKING) { outcome = flights.join(caller) }
        value = outcome == :lead ? lead(flights, caller, &) : outcome
        value.b
      rescue Error => e
        # An error of the block, like the end of a caller's own wait, concerns only its caller.
        flights.fail(caller, e) unless @computes || e.is_a?(TimedOut)
        raise
      ensure
        Thread.handle_interrupt(NEVER) { flights.leave(caller) }
      end
    end

    # Gets the lock, unless a holder's result ends the attempt. The caller has masked exceptions.
    # @return [HeldFlight, nil]
    def start(engine)
      got = yield(@request.waiting([@ends - engine.clock.now, 0.001].max), HeldFlight)
      return got unless got.is_a?(Attempt::Result)

      @result = got.value
      nil
    end

    private

    def lead(flights, caller)
      @ends = caller.ends
      value = @locks.within(@request, self) do |held|
        @computes = true
        held.value = demand_bytes(yield(held))
        flights.land(caller, held.value)
        held.value
      end
      return value if value

      flights.land(caller, @result)
      @result
    end

    def demand_bytes(value)
      return value.b.freeze if value.is_a?(String)

      @request.bad("block", "returned #{value.class}, not a String")
    end
  end

  # The held lock of a caller that computes a result.
  # @private
  class HeldFlight < Held
    # What the block returned.
    attr_accessor :value

    def reentrant?
      false
    end

    # If the block has ended normally, others get its value, and the caller does not need the lock.
    def finish(is_over)
      return super unless is_over

      @hold.result = @value
      begin
        super
      rescue Error
        nil # the lock expires
      end
      true
    end
  end
end
