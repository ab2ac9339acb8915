# frozen_string_literal: true

module Serverlock
  # A manager's state in one process: waiting attempts, holds, and the threads that look after them. A forked child
  # starts with a new one.
  # @private
  class Engine
    attr_reader :client, :clock, :server, :logger, :fork, :hooks, :timer, :renewals, :debts, :subscription, :blocking, :lone,
                :callbacks, :sessions, :random, :server_clock, :flights

    def initialize(client, logger, hooks, portable:, warn:)
      @client = client
      @clock = client.clock
      @logger = logger
      @hooks = hooks
      @fork = Process.pid
      @random = Random.new
      @server = Server.new(client, logger, portable:, warn:) { @subscription.send_all_again }
      @server_clock = ServerClock.new(client)
      @closed = false
      @callbacks = Callbacks.new(self)
      @renewals = Renewals.new(self)
      @debts = Debts.new(self)
      @timer = Timer.new(self)
      @subscription = Subscription.new(self)
      @blocking = Blocking.new(self)
      @lone = Lone.new(self)
      @sessions = Sessions.new(self)
      @flights = Flights.new(self)
    end

    # Starts a manager thread. It does not keep the process alive, and does not inherit an interrupt mask.
    def thread(name, &)
      @clock.thread do
        Thread.current.name = "serverlock #{name}"
        Thread.current.report_on_exception = false
        Thread.handle_interrupt(IMMEDIATE, &)
      rescue StandardError => e
        say("#{name} ended: #{e.full_message(highlight: false)}")
      end
    end

    def closed?
      @closed
    end

    def close
      return if @closed

      @closed = true
      @subscription.close
      @blocking.close
      @lone.close
      @sessions.close
      @flights.close
      @timer.wake
    end

    def say(text)
      @logger.warn("serverlock: #{text}")
    rescue StandardError
      nil
    end

    # Calls a hook on a callback thread: an error there does not lose a lock.
    def tell(name)
      hook = @hooks[name]
      @callbacks.run(hook, yield) if hook
    end

    def id
      1 + @random.rand(999_999_999_999_999_999)
    end

    # How long one background call may take.
    def patience
      [@client.timeout, 5.0].min
    end

    def census
      { "debts" => @debts.size, "waits" => @subscription.size, "slots" => @client.slots_in_use,
        "blocking" => @blocking.in_use, "renewals" => @renewals.size, "sessions" => @sessions.size,
        "flights" => @flights.size }
    end
  end

  # A few threads in which callbacks run.
  # @private
  class Callbacks
    THREADS = 3

    def initialize(engine)
      @engine = engine
      @queue = engine.clock.queue
      @threads = []
    end

    def run(callback, argument)
      @queue << [callback, argument]
      return if @threads.size >= THREADS || @queue.num_waiting.positive?

      @threads << @engine.thread("callbacks") { loop { call(*@queue.pop) } }
    end

    private

    def call(callback, argument)
      callback.call(argument)
    rescue Exception => e # rubocop:disable Lint/RescueException
      @engine.say("a callback failed: #{e.full_message(highlight: false)}")
    end
  end
end
