# frozen_string_literal: true

module Serverlock
  module Testing
    # The time of a {Server} and its managers. It passes only in {#advance}.
    #
    # `advance` carries out everything that falls due, in chronological order. After each step it waits until the
    # threads that the step woke have done their part: a manager's threads, until they are waiting again; the
    # application's threads, until they are waiting for something, or have ended.
    class Clock
      include Locking

      # Binary fractions of a second, so that sums of times are exact. A duration is rounded up.
      TICKS = 1 << 20
      # The time at which it begins, in seconds since 1970: the beginning of a day.
      START = Time.utc(2026, 1, 1).to_i
      # An application's thread that sleeps for this many checks waits for something outside this package.
      SLEEPS = 100
      # The same for a manager's thread, which then waits in a callback; and the number of checks after which a thread
      # counts as one that never waits.
      LONGEST = 5000
      CHECK = 0.001
      private_constant :TICKS, :SLEEPS, :LONGEST, :CHECK

      # A thread that waits; `due`: until when, or nil.
      Sleeper = Struct.new(:thread, :due, :gate)
      private_constant :Sleeper

      # @private
      attr_reader :ticks

      # @private
      def self.ticks(seconds)
        (seconds * TICKS).ceil
      end

      # @private
      def self.seconds(ticks)
        ticks.to_f / TICKS
      end

      # `events`: what falls due on the server. It has `next_at` and `run`.
      # @private
      def initialize(events)
        @events = events
        @mutex = Mutex.new
        @changed = ConditionVariable.new
        @advancing = Mutex.new
        @ticks = 0
        @sleepers = []
        # The threads that a step woke, each with the number of checks for which it has slept.
        @busy = {}.compare_by_identity
        @own = ObjectSpace::WeakMap.new
      end

      # Lets time pass.
      # @param seconds [Numeric]
      # @return [void]
      def advance(seconds)
        raise BadArgument, "advance takes seconds, 0 or more: #{seconds.inspect}" unless seconds.is_a?(Numeric) && seconds >= 0

        @advancing.synchronize do
          settle
          ends = @ticks + Clock.ticks(seconds)
          while (at = next_at) && at <= ends
            step([@ticks, at].max)
          end
          @ticks = ends
        end
        nil
      end

      # Waits until nothing is left to do at this time.
      # @private
      def settle
        locked do
          checks = 0
          until settled?(checks += 1)
            Thread.handle_interrupt(ON_BLOCKING) { @changed.wait(@mutex, CHECK) }
          end
        end
      end

      # Seconds since it was created.
      # @private
      def now
        Clock.seconds(@ticks)
      end

      # Microseconds since 1970.
      # @private
      def micros
        (START * 1_000_000) + (@ticks * 1_000_000 / TICKS)
      end

      # @private
      def sleep(seconds)
        mutex = Mutex.new
        mutex.synchronize { condition.wait(mutex, seconds) }
      end

      # @private
      def condition
        Condition.new(self)
      end

      # @private
      def queue
        Queue.new(self)
      end

      # Starts a manager's thread.
      # @private
      def thread
        locked do
          thread = Thread.new do
            yield
          ensure
            forget
          end
          @own[thread] = true
          @busy[thread] = 0
          thread
        end
      end

      # Nothing arrives from a network, so whatever waits for it has nothing to do.
      # @private
      def select(readers, seconds)
        forget
        IO.select(readers, nil, nil, seconds)&.first
      end

      # The calling thread begins to wait.
      # @private
      def park(seconds)
        locked do
          sleeper = Sleeper.new(Thread.current, seconds && (@ticks + [Clock.ticks(seconds), 1].max), Thread::Queue.new)
          @sleepers << sleeper
          @busy.delete(sleeper.thread)
          @changed.broadcast
          sleeper
        end
      end

      # Ends the wait. Returns false if something else has ended it.
      # @private
      def wake(sleeper)
        locked do
          next false unless @sleepers.delete(sleeper)

          @busy[sleeper.thread] = 0
          sleeper.gate << true
          true
        end
      end

      private

      # The calling thread has nothing more to do.
      def forget
        locked do
          @busy.delete(Thread.current)
          @changed.broadcast
        end
      end

      def next_at
        [@events.next_at, locked { @sleepers.filter_map(&:due).min }].compact.min
      end

      # What happens on the server comes first.
      def step(ticks)
        @ticks = ticks
        @events.run
        settle
        sleeper = locked { @sleepers.select(&:due).min_by(&:due) }
        wake(sleeper) && settle if sleeper && sleeper.due <= ticks
      end

      # Called with the mutex locked.
      def settled?(checks)
        @busy.each_key { |thread| @busy[thread] += 1 if thread.stop? }
        @busy.delete_if do |thread, slept|
          !thread.alive? || slept >= (@own.key?(thread) ? LONGEST : SLEEPS) || (checks >= LONGEST && !@own.key?(thread))
        end
        @busy.empty? || (@busy.size == 1 && @busy.key?(Thread.current))
      end
    end

    # A ConditionVariable whose waits are counted on the clock.
    # @private
    class Condition
      def initialize(clock)
        @clock = clock
        @sleepers = []
      end

      def wait(mutex, seconds = nil)
        sleeper = @clock.park(seconds)
        @sleepers << sleeper
        mutex.unlock
        sleeper.gate.pop
      ensure
        Thread.handle_interrupt(NEVER) do
          mutex.lock unless mutex.owned?
          @sleepers.delete(sleeper)
          @clock.wake(sleeper) if sleeper # it was interrupted
        end
      end

      # Called with the mutex locked.
      def signal
        while (sleeper = @sleepers.shift)
          return if @clock.wake(sleeper)
        end
      end

      def broadcast
        signal until @sleepers.empty?
      end
    end

    # A Thread::Queue whose waits are counted on the clock.
    # @private
    class Queue
      include Locking

      attr_reader :num_waiting

      def initialize(clock)
        @mutex = Mutex.new
        @changed = Condition.new(clock)
        @items = []
        @num_waiting = 0
      end

      def <<(item)
        locked do
          @items << item
          @changed.signal
        end
        self
      end

      def pop
        @mutex.synchronize do
          while @items.empty?
            @num_waiting += 1
            begin
              @changed.wait(@mutex)
            ensure
              @num_waiting -= 1
            end
          end
          @items.shift
        end
      end

      def size
        @items.size
      end

      def empty?
        @items.empty?
      end
    end
  end
end
