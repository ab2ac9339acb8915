# frozen_string_literal: true

module Serverlock
  # What became of a call for a tick.
  #
  # `outcome` is `:ran` (the block ran here), `:elsewhere` (another process is running the tick, or has run it), or
  # `:recovered` (the lease of a process that ran expired within this window, perhaps in the middle of its work, and the
  # block ran here). `value` is what the block returned; nil if it ran elsewhere.
  Outcome = Struct.new(:outcome, :value)

  # Describes a block that runs once per period, in one of the processes that ask. It holds nothing. Several callers can
  # use it.
  class Once
    # A lease that ends earlier than it should by more than EARLY seconds, or later by more than LATE, is corrected.
    EARLY = 0.002
    LATE = 0.1
    # A long lease is at least this long until the tick of its grant is known: that may be the next one.
    LEAST_LEASE = 1.0
    # After this time, two clocks may have drifted so far apart that the server's is read again when a block ends.
    DRIFTS = 600.0
    private_constant :EARLY, :LATE, :LEAST_LEASE, :DRIFTS

    # @private
    def self.drifts?(estimate, clock)
      clock.now > estimate.asked + DRIFTS || !estimate.good?
    end

    # @private
    def initialize(locks, key, period:, lease:, rerun:, **options)
      @locks = locks
      @options = options
      @key = key
      check = Request.new(key, lease: 1)
      @period = check.seconds_of("period", period, Ticks::LEAST_PERIOD)
      check.bad("rerun", "is not true or false: #{rerun.inspect}") unless [true, false].include?(rerun)
      @rerun = rerun
      @request = request(lease || Ticks.default_lease(@period))
      check.bad("lease", "is longer than half of the period: #{lease} s") if @request.lease > @period / 2
    end

    # Calls the block with its hold, unless another process is running this tick, or has run it.
    #
    # If the block ends normally, nobody else runs this tick. If it raises, or is left by `break`, `return`, `throw` or
    # the end of its thread, another process may run this tick.
    # @yieldparam held [HeldOnce]
    # @return [Outcome]
    # @raise [Lost, Unavailable, Denied, NoServer, Misuse]
    def run
      raise BadArgument, "run takes a block" unless block_given?

      held = nil
      value = @locks.within(@request, self) do |it|
        held = it
        yield it
      end
      return Outcome.new(:elsewhere, nil) unless held

      Outcome.new(held.recovered? ? :recovered : :ran, value)
    end

    # Begins to run the current tick. The caller has masked exceptions; the block gets the lock for a request.
    # @private
    # @return [HeldOnce, nil] nil if another process is running it, or has run it
    def start(engine)
      estimate = engine.server_clock.read(@request.keys[0])
      held = yield(@rerun ? @request : long_request(engine, estimate), HeldOnce)
      held.run = run_of(engine, held.hold, estimate)
      correct(held.hold, held.run) unless @rerun
      given = held
    rescue Refused
      nil
    rescue ReplyError => e
      raise e.for(@request.name)
    rescue ConnectionLost => e
      raise NoServer.new("lock #{@request.name.inspect}: #{e.message}", key: @request.name)
    ensure
      Thread.handle_interrupt(NEVER) { held.hold.abandon } if held && !given
    end

    # @return [String]
    def inspect
      "#<Serverlock::Once #{@request.name.inspect} every #{@period} s>"
    end

    private

    def request(lease, **more)
      Request.new(@key, lease:, details: true, **@options, **more)
    end

    # A lease that lasts until the end of the window from the start. It is never renewed.
    def long_request(engine, estimate)
      now = engine.clock.now
      tick = Ticks.at(now + estimate.offset, @period)
      run = Run.new(tick, @period, false, estimate, engine.server_clock.margin, true)
      request([run.lease_ends - now, LEAST_LEASE].max, max_hold: 0)
    end

    def run_of(engine, hold, estimate)
      margin = engine.server.module_missing? ? Portable::MARGIN / 1000.0 : engine.server_clock.read_margin(@request.keys[0])
      # The server granted it between two moments. If a kept lease had to end first, its window has ended by the later.
      tick = Ticks.at(hold.answered_at + estimate.offset, @period)
      granted = hold.granted_at + estimate.offset - estimate.doubt
      before = hold.predecessor
      is_recovery = !before.nil? && Ticks.recovery?(granted - before.overdue, tick, @period)
      Run.new(tick, @period, is_recovery, estimate, margin, !@rerun)
    end

    # Sets the end of a long lease again if it is off, because of the tick or the margin, or because the server may have
    # counted it from too late a moment.
    def correct(hold, run)
      took = hold.answered_at - hold.granted_at
      3.times do
        break if (hold.lease.ends_at - run.lease_ends).between?(-EARLY, LATE) && took <= Keep::LATE

        sent = hold.engine.clock.now
        hold.extend([((run.lease_ends - sent) * 1000).ceil, 1].max)
        took = hold.engine.clock.now - sent
      end
    end
  end

  # The tick that a hold runs. `is_long`: from the start, its lease lasts until the end of the window.
  # @private
  Run = Struct.new(:tick, :period, :is_recovery, :estimate, :margin, :is_long) do
    # When the lease must end, by {Clock}, so that the server lets others in at the end of the window. If the estimate
    # of the server's clock is wrong, others may get in a little later, but not earlier.
    def lease_ends
      Ticks.ends(tick, period) + [estimate.doubt, Estimate::MOST_DOUBT].min - estimate.offset - margin
    end
  end

  # The held lock of one tick.
  class HeldOnce < Held
    # @private
    attr_accessor :run

    # @return [Integer] how many periods after the beginning of 1970 the tick begins, by the server's clock
    def tick
      @run.tick
    end

    # @return [Boolean] whether the lease of a process that ran expired within this window: its work may be half done
    def recovered?
      @run.is_recovery
    end

    # @private
    def reentrant?
      false
    end

    # Ends the hold. If the block has ended normally, nobody else will run its tick.
    # @private
    def finish(is_over)
      return super unless is_over

      begin
        read_again if held? && !@run.is_long && Once.drifts?(@run.estimate, @hold.engine.clock)
        @hold.keep_until(@run.lease_ends, is_long: @run.is_long)
      ensure
        # Its caller was interrupted.
        Thread.handle_interrupt(NEVER) { @hold.keep_later(@run.lease_ends) }
      end
    end

    private

    def read_again
      @run.estimate = @hold.engine.server_clock.read(key)
    rescue ReplyError, ConnectionLost
      nil
    end
  end
end
