# frozen_string_literal: true

require "logger"

module Serverlock
  # The locks of one of the application's Redis clients. Create one {Locks} for each client, and keep it.
  #
  # @example
  #   locks = Serverlock::Locks.new(Redis.new)
  #   locks.lock("report", lease: 30, wait: 60) do |held|
  #     write_report(held.token)
  #   end
  class Locks
    # @param client [Redis, ConnectionPool] the application's own client
    # @param portable [Boolean] use the portable script where the server lacks the module
    # @param warn_without_module [Boolean] warn once in that case
    # @param logger [Logger] silent unless something is wrong; stderr by default
    # @param on_granted [#call, nil] hooks: called on a manager thread, with an event that has `key`, `waited` and
    #   `held`
    # @param on_refused [#call, nil]
    # @param on_lost [#call, nil]
    # @param on_released [#call, nil]
    # @param on_attempt [#call, nil] called in the thread that asks for a lock, with the keys, before anything is sent.
    #   It returns a watch: one of `granted(command, token, waited)`, `failed(command, waited, error)` and
    #   `result(command, waited)` is called in the same thread, before the call returns; the error is nil if the caller
    #   was interrupted. After `granted`, `ended(how, held, error)` is called once, in any thread; `how` is `:released`,
    #   `:lost` or `:expired`, and the error is the loss. Neither must block.
    def initialize(client, portable: true, warn_without_module: true, logger: nil, on_granted: nil, on_refused: nil,
                   on_lost: nil, on_released: nil, on_attempt: nil)
      @client = Client.of(client)
      @logger = logger || Logger.new($stderr, level: Logger::WARN, progname: "serverlock")
      @hooks = { on_granted:, on_refused:, on_lost:, on_released:, on_attempt: }.compact
      @options = { portable:, warn: warn_without_module }
      @scopes = Scopes.new
      @engine = Engine.new(@client, @logger, @hooks, **@options)
      @forking = Mutex.new
    end

    # A lock with one holder. With a block, it is held for the block, and the block's result is returned.
    #
    # @param key [String]
    # @param lease [Numeric] seconds after which the lock ends if this process dies; renewed until then
    # @param wait [Numeric] seconds to wait in the queue; 0: fail at once if the lock is taken
    # @param owner [String, Symbol, nil] a label that others see, 1 to 128 visible ASCII characters; the default is
    #   the host's name and the process ID, as in "web-1:4711"; nil: no label, for keys whose other clients expect a
    #   pure number
    # @param details [Boolean] ask for the last holder, if its lock expired
    # @param session [Boolean] the lock ends with its connection, which the session locks of a thread share
    # @param replicas [Integer, nil] this many replicas must confirm the grant
    # @param fsync [Boolean] disks must confirm the grant
    # @param replicas_within [Numeric] seconds for both
    # @param at_least [Numeric, nil] seconds for which it stays locked, even if released earlier
    # @param max_hold [Numeric, nil] seconds after which it is no longer renewed
    # @param on_lost [#call, nil] called once with the {Held} when the lock is lost
    # @param reentrant [Boolean] a caller that already holds the lock gets the same hold again
    # @param interrupt [Boolean] a loss raises {Lost} in the thread that runs the block, wherever it is
    # @yieldparam held [Held]
    # @return [Lock, Object] without a block, a {Lock}
    # @raise [Refused, TimedOut, Lost, Deadlock, Unavailable, Denied, NoServer, BadArgument, Misuse]
    def lock(key, lease:, wait: 0, owner: :host_and_pid, details: false, session: false, replicas: nil, fsync: false,
             replicas_within: 1, at_least: nil, max_hold: nil, on_lost: nil, interrupt: false,
             reentrant: false, &block)
      made(Request.new(key, lease:, wait:, owner:, details:, session:, replicas:,
                            fsync:, replicas_within:, at_least:, max_hold:,
                            on_lost:, interrupt:, reentrant:), &block)
    end

    # A lock that many holders share; a holder of {#lock} excludes them. Options as for {#lock}.
    # @return [Lock, Object]
    def shared(key, lease:, wait: 0, owner: :host_and_pid, details: false, session: false, replicas: nil, fsync: false,
               replicas_within: 1, at_least: nil, max_hold: nil, on_lost: nil, interrupt: false,
               reentrant: false, &block)
      made(Request.new(key, shared: true, lease:, wait:, owner:, details:, session:,
                            replicas:, fsync:, replicas_within:, at_least:,
                            max_hold:, on_lost:, interrupt:, reentrant:), &block)
    end

    # A lock with at most this many holders. Options as for {#lock}.
    # @param most [Integer] 1 to 4096
    # @return [Lock, Object]
    def limit(key, most, lease:, wait: 0, owner: :host_and_pid, details: false, session: false, replicas: nil, fsync: false,
              replicas_within: 1, at_least: nil, max_hold: nil, on_lost: nil, interrupt: false,
              reentrant: false, &block)
      made(Request.new(key, limit: most, lease:, wait:, owner:, details:, session:,
                            replicas:, fsync:, replicas_within:, at_least:,
                            max_hold:, on_lost:, interrupt:, reentrant:), &block)
    end

    # All of these locks, or none. Options as for {#lock}.
    # @param keys [Array<String>]
    # @return [Lock, Object]
    def all_of(keys, lease:, wait: 0, owner: :host_and_pid, session: false, replicas: nil, fsync: false, replicas_within: 1,
               at_least: nil, max_hold: nil, on_lost: nil, interrupt: false,
               reentrant: false, &block)
      made(Request.new(keys, several: true, lease:, wait:, owner:, session:, replicas:,
                             fsync:, replicas_within:, at_least:, max_hold:,
                             on_lost:, interrupt:, reentrant:), &block)
    end

    # A lock that can be acquired only if it has expired, because its holder never released it. Options as for {#lock}.
    # @return [Lock, Object]
    def recover(key, lease:, owner: :host_and_pid, session: false, replicas: nil, fsync: false, replicas_within: 1, at_least: nil,
                max_hold: nil, on_lost: nil, interrupt: false,
                reentrant: false, &block)
      made(Request.new(key, recover: true, lease:, owner:, session:, replicas:, fsync:,
                            replicas_within:, at_least:, max_hold:, on_lost:,
                            interrupt:, reentrant:), &block)
    end

    # A block that runs once for each tick, in one of the processes that ask: for cron jobs. Ticks begin at
    # multiples of the period, counted from the beginning of 1970 on the server's clock, and a call is for the nearest
    # one. The other options are those of {#lock}.
    #
    # @example
    #   locks.once("nightly report", period: 24 * 3600) { |held| write_report(held.token) }
    # @param key [String]
    # @param period [Numeric] seconds, at least 10
    # @param lease [Numeric, nil] seconds after which another process may run the tick if this one dies; at most half of
    #   the period. By default 10, or a quarter of the period if that is shorter
    # @param rerun [Boolean] whether a tick whose process died runs again. If not, the lease lasts until halfway to the
    #   next tick, and the block may take nine tenths of that
    # @yieldparam held [HeldOnce] not called if the tick runs elsewhere
    # @return [Once, Outcome] with a block, the same as {Once#run}
    # @raise [Lost, Unavailable, Denied, NoServer, BadArgument, Misuse]
    def once(key, period:, lease: nil, rerun: true, owner: :host_and_pid, replicas: nil, fsync: false, replicas_within: 1,
             max_hold: nil, on_lost: nil, interrupt: false, &block)
      once = Once.new(self, key, period:, lease:, rerun:, owner:, replicas:, fsync:, replicas_within:, max_hold:, on_lost:,
                                 interrupt:)
      block ? once.run(&block) : once
    end

    # One result for many callers: of all that ask at the same time, in any process, one runs the block, and those that
    # wait get the same bytes. The threads that ask one {Locks} share one attempt, with the options of the first; each
    # has its own `wait`. The other options are those of {#lock}.
    #
    # The lock is held for the block, and released with its result. If the block raises, its caller gets the error, and
    # the next caller in the queue computes. Results of more than `lock.result-max` bytes (64 KB by default) are not
    # shared among processes. Nothing is kept: a caller that comes later computes again.
    #
    # @example
    #   page = cache.read("page") || locks.single_flight("page", lease: 30) do
    #     render_page.tap { |page| cache.write("page", page) }
    #   end
    # @param key [String]
    # @param wait [Numeric] seconds to wait for the result, at least 0.001
    # @yieldparam held [Held]
    # @yieldreturn [String]
    # @return [String] binary
    # @raise [TimedOut, Refused, Lost, Unavailable, Denied, NoServer, BadArgument, Misuse]
    def single_flight(key, lease:, wait: 60, owner: :host_and_pid, max_hold: nil, on_lost: nil, interrupt: false, &block)
      raise BadArgument, "single_flight takes a block" unless block

      request = Request.new(key, lease:, wait:, owner:, max_hold:, on_lost:, interrupt:, takes_result: true)
      again(request, engine)
      SingleFlight.new(self, request).run(&block)
    end

    # Elects one leader among all processes that campaign for the key.
    # @return [Leader] call {Leader#start}
    def leader(key, lease:, owner: :host_and_pid, on_elected: nil, on_deposed: nil)
      Leader.new(self, lock(key, lease:, wait: Leader::WAIT, owner:), on_elected, on_deposed)
    end

    # Yields the token and owner of the leader whenever that changes; two nils if there is none.
    # @return [Observer] already watching; call {Observer#stop}
    def observe(key, lease:, &block)
      Observer.new(self, Request.new(key, lease:), block)
    end

    # Ends all waits. Held locks are no longer renewed, but can be released.
    def close
      engine.close
    end

    # @return [String]
    def inspect
      "#<Serverlock::Locks #{@engine.closed? ? 'closed' : @engine.timer.size}>"
    end

    # Counts of what this manager keeps, for tests.
    # @private
    def census
      engine.census.merge("holds" => engine.timer.size, "scopes" => Scopes.size(self))
    end

    # @private
    def engine
      engine = @engine
      engine.fork == Process.pid ? engine : forked
    end

    # @private
    def acquire(request)
      held = given = nil
      Thread.handle_interrupt(ON_BLOCKING) do
        held = request.reentrant ? obtain_again(request) : obtain(request)
      end
      given = held
    ensure
      Thread.handle_interrupt(NEVER) { held.hold.leave_again || held.hold.abandon if held && !given }
    end

    # Returns an unmanaged grant: neither renewed nor reported lost. For adapters that pass on their locks.
    # @private
    def grant(request)
      hold = given = nil
      raise Misuse.new("lock #{request.name.inspect}: its manager is closed", key: request.name) if engine.closed?

      Thread.handle_interrupt(ON_BLOCKING) { hold = Attempt.new(engine, request).run }
      given = hold
    ensure
      Thread.handle_interrupt(NEVER) { hold.abandon if hold && !given }
    end

    # Renews a grant from now on if it is still held, even if it was granted to another process.
    # @private
    # @return [Held, nil]
    def resume(request, token)
      Thread.handle_interrupt(ON_BLOCKING) do
        hold = Hold.new(engine, request, nil, token, engine.clock.now)
        hold.extend_now
        next unless hold.held?

        held = Held.new(hold)
        engine.timer.add(hold)
        held
      end
    end

    # The `ensure` masks exceptions at once: none can strike before it does. `starter`: gets the lock in its own way
    # ({Once}, {SingleFlight}); without one, the block does not run.
    # @private
    def within(request, starter = nil)
      outer = request.reentrant && again(request, engine)
      return yield outer if outer # the outermost scope releases it

      held = scope = body = nil
      begin
        Thread.handle_interrupt(ON_BLOCKING) do
          held = starter ? start(starter, request) : obtain(request)
          next unless held

          scope = @scopes.enter(self, held.hold)
          body = request.interrupt ? Body.new(held.hold) : nil
        end
        result = yield held if held
        is_over = true
        result
      rescue Exception # rubocop:disable Lint/RescueException
        failed = true
        raise
      ensure
        Thread.handle_interrupt(ON_BLOCKING) { leave(held, scope, body, failed, is_over) if held }
      end
    end

    private

    def made(request, &block)
      lock = Lock.new(self, request)
      block ? within(request, &block) : lock
    end

    # The hold that this caller already has and gets again, or nil.
    def again(request, engine)
      raise Misuse.new("lock #{request.name.inspect}: its manager is closed", key: request.name) if engine.closed?

      @scopes.held(request, self)
    end

    def start(starter, request)
      engine = self.engine
      again(request, engine)
      starter.start(engine) { |its_request, kind| obtain(its_request, kind) }
    end

    # The caller may get this hold again until it is released. The caller has masked exceptions.
    def obtain_again(request)
      held = again(request, engine)
      return held if held&.hold&.enter_again

      held = obtain(request)
      held.hold.scope = @scopes.enter(self, held.hold)
      held
    end

    # The caller has masked exceptions. Returns an {Attempt::Result} if the attempt ended with one.
    def obtain(request, kind = Held)
      engine = self.engine
      again(request, engine)
      watching = Watching.begin(engine, request)
      began = engine.clock.now
      begin
        hold = Attempt.new(engine, request).run
      rescue Error => e
        failure = e
        engine.tell(:on_refused) { Hold::Event.new(request.name, engine.clock.now - began, nil) }
        raise
      ensure
        watching&.failed(failure) unless hold
      end
      if hold.is_a?(Attempt::Result)
        watching&.result
        return hold
      end

      begin
        held = kind.new(hold)
        hold.watching = watching
        watching&.granted(hold)
        engine.timer.add(hold)
        engine.sessions.keep(hold) if hold.session
        engine.tell(:on_granted) { hold.event(engine.clock.now - began) }
        given = held
      ensure
        hold.abandon unless given
      end
    end

    # `is_over`: the block has ended normally; `failed`: an exception ended it, or was raised after it.
    def leave(held, scope, body, failed, is_over)
      failed &&= !is_over
      body&.close
      is_held = held.hold.released? || held.finish(is_over)
      raise held.hold.lost(held.hold.reason || "it ended before its work did") unless is_held || failed
    rescue Denied, BadArgument, NoServer
      raise unless failed
    ensure
      scope&.leave
    end

    def forked
      @forking.synchronize do
        if @engine.fork != Process.pid
          @client.renew
          @engine = Engine.new(@client, @logger, @hooks, **@options)
        end
        @engine
      end
    end
  end

  # A description of a lock, which holds nothing. Several callers can use it: each gets its own hold.
  class Lock
    # @private
    def initialize(locks, request)
      @locks = locks
      @request = request
    end

    # @return [Held] release it
    # @raise [Refused, TimedOut, Deadlock, Unavailable, Denied, NoServer, Misuse]
    def acquire
      @locks.acquire(@request)
    end

    # Holds the lock for a block.
    # @yieldparam held [Held]
    # @return [Object] what the block returns
    def synchronize(&block)
      raise BadArgument, "synchronize takes a block" unless block

      @locks.within(@request, &block)
    end

    # @return [String]
    def inspect
      "#<Serverlock::Lock #{@request.name.inspect}>"
    end
  end
end
