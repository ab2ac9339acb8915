# frozen_string_literal: true

module Serverlock
  # The callers of {Locks#single_flight} in one manager. Those that ask for the same key share one attempt: the caller
  # that has waited longest leads, which means that it has the attempt, and the others wait for its value.
  # @private
  class Flights
    include Locking

    # One caller. `outcome` is :lead, a String or an {Error}.
    Caller = Struct.new(:request, :ends, :changed, :outcome)

    def initialize(engine)
      @engine = engine
      @mutex = Mutex.new
      # The callers of each key, in order of arrival. The first one leads.
      @callers = {}
    end

    # How many callers there are.
    def size
      locked { @callers.each_value.sum(&:size) }
    end

    # A caller that has not joined yet.
    def caller(request)
      Caller.new(request, @engine.clock.now + request.wait, @engine.clock.condition)
    end

    # Waits for the value, or until the caller leads. The caller has masked exceptions.
    # @return [String, :lead]
    # @raise [TimedOut] or the error of the attempt that the callers share
    def join(caller)
      locked do
        callers = (@callers[key(caller)] ||= [])
        callers << caller
        caller.outcome = :lead if callers.size == 1
        until caller.outcome
          left = caller.ends - @engine.clock.now
          raise timed_out(caller) unless left.positive?

          Thread.handle_interrupt(ON_BLOCKING) { caller.changed.wait(@mutex, left) }
        end
      end
      caller.outcome.is_a?(Exception) ? raise(caller.outcome) : caller.outcome
    end

    # The leader has computed the value. Whoever asks after that begins a new attempt.
    def land(leader, value)
      locked { finish(leader) { value } }
    end

    # The leader's attempt failed, and with it those of all.
    def fail(leader, error)
      locked { finish(leader) { error.class.new(error.message, key: error.key) } }
    end

    # The caller has ended. If it leads, the next one does.
    def leave(caller)
      locked do
        callers = @callers[key(caller)]
        at = callers&.index { |other| other.equal?(caller) }
        next unless at

        callers.delete_at(at)
        if callers.empty?
          @callers.delete(key(caller))
        elsif at.zero?
          give(callers[0], :lead)
        end
      end
    end

    # Ends all but the leaders, whose attempts end on their own.
    def close
      locked do
        @callers.each_value do |callers|
          callers.drop(1).each { |caller| give(caller, closed(caller)) }
        end
      end
    end

    private

    def key(caller)
      caller.request.keys[0]
    end

    # The methods below are called with the mutex locked.

    # Gives each of the others what the block returns.
    def finish(leader)
      callers = @callers[key(leader)]
      return unless callers && callers[0].equal?(leader)

      @callers.delete(key(leader))
      callers.drop(1).each { |caller| give(caller, yield) }
    end

    def give(caller, outcome)
      caller.outcome ||= outcome
      caller.changed.signal
    end

    def timed_out(caller)
      name = caller.request.name
      TimedOut.new("lock #{name.inspect}: somebody else still has it after #{caller.request.wait} s", key: name)
    end

    def closed(caller)
      Misuse.new("lock #{caller.request.name.inspect}: its manager is closed", key: caller.request.name)
    end
  end
end
