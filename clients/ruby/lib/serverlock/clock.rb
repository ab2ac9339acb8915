# frozen_string_literal: true

module Serverlock
  # Seconds on a clock that keeps running while the machine is suspended.
  # @private
  module Clock
    # Counts the time that passed on the monotonic clock or on the wall clock, whichever is larger. For systems without
    # CLOCK_BOOTTIME: setting the wall clock back lengthens no lease; setting it forward may cause a loss to be reported
    # too early.
    class Larger
      def initialize(monotonic, wall)
        @monotonic = monotonic
        @wall = wall
        @mutex = Mutex.new
        @at = [monotonic.call, wall.call]
        @now = 0.0
      end

      def now
        @mutex.synchronize do
          at = [@monotonic.call, @wall.call]
          @now += at.zip(@at).map { |now, before| now - before }.max
          @at = at
          @now
        end
      end
    end

    if defined?(Process::CLOCK_BOOTTIME)
      def self.now
        Process.clock_gettime(Process::CLOCK_BOOTTIME)
      end
    else
      LARGER = Larger.new(-> { Process.clock_gettime(Process::CLOCK_MONOTONIC) },
                          -> { Process.clock_gettime(Process::CLOCK_REALTIME) })
      private_constant :LARGER

      def self.now
        LARGER.now
      end
    end

    # The waits of a manager. {Testing} has a clock with the same methods, whose time passes when a test says so.
    module_function

    def sleep(seconds)
      Kernel.sleep(seconds)
    end

    def condition
      ConditionVariable.new
    end

    def queue
      Thread::Queue.new
    end

    def thread(&)
      Thread.new(&)
    end

    # Waits for something to read. @return [Array<IO>, nil]
    def select(readers, seconds)
      IO.select(readers, nil, nil, seconds)&.first
    end
  end

  # Asynchronous exceptions (Thread#raise, Thread#kill, Timeout) strike only in blocking calls, never in the code
  # between them.
  ON_BLOCKING = { Object => :on_blocking }.freeze
  NEVER = { Object => :never }.freeze
  IMMEDIATE = { Object => :immediate }.freeze
  private_constant :ON_BLOCKING, :NEVER, :IMMEDIATE

  # For objects with a `@mutex`.
  # @private
  module Locking
    private

    # Runs the block with the mutex locked. No exception strikes a caller that waits for the mutex or holds it.
    def locked(&)
      Thread.handle_interrupt(NEVER) { @mutex.synchronize(&) }
    end
  end
end
