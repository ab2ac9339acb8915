# frozen_string_literal: true

module Serverlock
  # Lets a few callers in at a time, in order of arrival.
  #
  # If an exception strikes a thread that waits for a Mutex, a Queue or a ConditionVariable, the thread may consume a
  # wake-up that was meant for another. So here each caller waits for its own wake-up, and passes on an unused one; and
  # nothing in this package waits for a mutex where an exception can strike.
  # @private
  class Gate
    # A waiting caller.
    class Waiter
      attr_reader :changed
      attr_accessor :is_in

      def initialize
        @changed = ConditionVariable.new
        @is_in = false
      end
    end

    def initialize(size)
      @size = size
      @free = size
      @mutex = Mutex.new
      @queue = []
      @was_full = false
      @crowded = nil
    end

    def in_use
      @size - @free - (@crowded ? 1 : 0)
    end

    # How many callers are waiting.
    def waiting
      @queue.size
    end

    # Lets in one fewer caller until `widen`. Returns false if all slots have been in use at once before. The block is
    # called, with exceptions masked, when somebody has to wait for the slot taken here.
    def narrow(&crowded)
      @mutex.synchronize do
        return false if @was_full || @free < 2

        @free -= 1
        @crowded = crowded
      end
      true
    end

    def widen
      @mutex.synchronize do
        @crowded = nil
        pass_on
      end
    end

    # Yields with all exceptions masked; they can strike while the caller waits. `within`: how many seconds it waits.
    # @raise [ConnectionLost] after that time
    def with(within: nil)
      Thread.handle_interrupt(NEVER) do
        @crowded&.call if @free.zero?
        enter(within && (Clock.now + within))
        begin
          yield
        ensure
          leave
        end
      end
    end

    private

    def enter(ends)
      @mutex.synchronize do
        if @free.positive?
          @free -= 1
          next @was_full ||= @free.zero? && !@crowded
        end

        waiter = Waiter.new
        @queue << waiter
        begin
          until waiter.is_in
            left = ends && (ends - Clock.now)
            raise ConnectionLost, "another caller has asked the server, and is waiting for the reply" if left&.negative?

            Thread.handle_interrupt(ON_BLOCKING) { waiter.changed.wait(@mutex, left) }
          end
          is_in = true
        ensure
          give_up(waiter) unless is_in
        end
      end
    end

    def leave
      @mutex.synchronize { pass_on }
    end

    def give_up(waiter)
      waiter.is_in ? pass_on : @queue.delete(waiter)
    end

    def pass_on
      waiter = @queue.shift
      return @free += 1 unless waiter

      waiter.is_in = true
      waiter.changed.signal
    end
  end
end
