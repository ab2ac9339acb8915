# frozen_string_literal: true

module Serverlock
  # What a manager has in one process: the attempts that wait, the holds, and the threads that look after them. A child of
  # a fork begins with a new one.
  # @private
  class Engine
    attr_reader :client, :server, :logger, :fork, :hooks, :timer, :renewals, :settlement, :subscription, :blocking, :callbacks,
                :watcher, :random

    def initialize(client, logger, hooks, portable:, warn:)
      @client = client
      @logger = logger
      @hooks = hooks
      @fork = Process.pid
      @random = Random.new
      @server = Server.new(client, logger, portable:, warn:)
      @closed = false
      @callbacks = Callbacks.new(self)
      @renewals = Renewals.new(self)
      @settlement = Settlement.new(self)
      @timer = Timer.new(self)
      @subscription = Subscription.new(self)
      @blocking = Blocking.new(self)
      @watcher = Watcher.new(self)
    end

    # A thread of the manager. It keeps no process from ending, and nobody's mask.
    def thread(name, &)
      Thread.new do
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
      @timer.wake
    end

    def say(text)
      @logger.warn("serverlock: #{text}")
    rescue StandardError
      nil
    end

    # Tells a hook, in a thread of its own: an error there costs no lock.
    def tell(name)
      hook = @hooks[name]
      @callbacks.run(hook, yield) if hook
    end

    def id
      1 + @random.rand(999_999_999_999_999_999)
    end

    # How long one call of the background may take.
    def patience
      [@client.timeout, 5.0].min
    end

    def census
      { "debts" => @settlement.size, "waits" => @subscription.size, "slots" => @client.slots_in_use,
        "blocking" => @blocking.in_use, "renewals" => @renewals.size }
    end
  end

  # A few threads in which callbacks run.
  # @private
  class Callbacks
    THREADS = 3

    def initialize(engine)
      @engine = engine
      @queue = Thread::Queue.new
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

  # Sends in batches what is due, renewals and copies of attempts that wait: over a connection of the application's if one
  # is free, else over one of its own.
  # @private
  class Renewals
    BATCH = 100
    # In a cluster, a node that does not answer must not hold up the others.
    THREADS_FOR_CLUSTER = 3

    def initialize(engine)
      @engine = engine
      @queue = Thread::Queue.new
      @threads = []
    end

    def size
      @queue.size
    end

    def push(holds)
      holds.each { |hold| @queue << hold }
      most = @engine.client.cluster? ? THREADS_FOR_CLUSTER : 1
      @threads << @engine.thread("renewals") { work } while @threads.size < most
    end

    private

    def work
      connection = nil
      loop do
        batch = [@queue.pop]
        batch << @queue.pop until @queue.empty? || batch.size >= BATCH || @engine.client.cluster?
        batch.reject!(&:gone?)
        next if batch.empty?

        begin
          unless @engine.client.borrow { |theirs| renew(batch, theirs) }
            connection ||= @engine.client.calls
            renew(batch, connection)
          end
        rescue StandardError => e
          @engine.say("a renewal failed: #{e.full_message(highlight: false)}") unless e.is_a?(ConnectionLost) || e.is_a?(ReplyError)
          batch.each(&:not_renewed)
          connection&.close
          connection = nil
        end
      end
    end

    def renew(batch, connection)
      server = @engine.server
      patience = [@engine.patience, *batch.map { |hold| [hold.lease_s / 6, 0.1].max }].min
      commands = batch.map(&:renewal)
      words = batch.zip(commands).map { |hold, command| server.translate(command, hold.needs_module?) }
      replies = connection.pipeline(words, patience)
      batch.each_with_index do |hold, at|
        hold.renewed(server.settle(replies[at], commands[at], hold.needs_module?, connection, patience))
      end
    end
  end

  # Looks at all holds: which are lost, and which are to be renewed. One thread for a manager.
  # @private
  class Timer
    # Nothing wakes a thread during a suspend of the machine.
    LONGEST = 1.0
    # An idle manager has no wake-ups.
    LINGERS = 5.0

    def initialize(engine)
      @engine = engine
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @holds = {}.compare_by_identity
      # When it looks again; -1 while it looks.
      @next_at = -1.0
      @woken = false
      @thread = nil
    end

    # Nothing but the table changes, as a rule: an entry is set and deleted in one step.
    def add(hold)
      @holds[hold] = true
      next_at = @next_at
      return if @thread && next_at >= 0 && next_at <= hold.lease.due_at

      Thread.handle_interrupt(NEVER) do
        @mutex.synchronize do
          @thread ||= @engine.thread("timer") { work }
          @woken = true
          @changed.signal
        end
      end
    end

    def remove(hold)
      @holds.delete(hold)
    end

    def size
      @holds.size
    end

    def wake
      @mutex.synchronize { @changed.signal }
    end

    private

    def work
      busy_at = Clock.now
      loop do
        @next_at = -1.0
        now = Clock.now
        holds = @holds.keys
        # It is woken for the first of many locks that all end before it looks.
        busy_at = now if @woken || !holds.empty?
        @woken = false
        due = []
        at = holds.map { |hold| hold.look(now, due) }.min || Float::INFINITY
        @engine.renewals.push(due) unless due.empty?
        at = [at, now + LONGEST].min if now - busy_at < LINGERS
        return if sleep_until(at)
      end
    end

    # Returns true if this thread is over.
    def sleep_until(at)
      @mutex.synchronize do
        if @engine.closed? && @holds.empty?
          @thread = nil
          return true
        end
        return false if @woken

        at = [at, Clock.now + LONGEST].min unless @holds.empty?
        @next_at = at
        left = at - Clock.now
        if at == Float::INFINITY
          @changed.wait(@mutex)
        elsif left.positive?
          @changed.wait(@mutex, left)
        end
      end
      false
    end
  end

  # Gives back what callers could not: over a connection of its own, until it is answered or the lease would be over.
  # @private
  class Settlement
    # `command`: what gives it back. `request` and `id`: of an attempt; nil for a hold.
    Debt = Struct.new(:command, :request, :id, :until, :next_at, :pause)
    FIRST_PAUSE = 0.05
    LONGEST_PAUSE = 1.0
    IDLE = 10.0

    def initialize(engine)
      @engine = engine
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @debts = []
      @thread = nil
    end

    def size
      @debts.size
    end

    # Never fails, and is never interrupted.
    def cancel(request, id)
      add(Debt.new(nil, request, id, Clock.now + request.lease, 0.0, FIRST_PAUSE))
    end

    def release(hold, at = 0.0)
      add(Debt.new(hold.request.release(hold.token), hold.request, nil, [Clock.now, at].max + hold.lease_s, at, FIRST_PAUSE))
    end

    private

    def add(debt)
      Thread.handle_interrupt(NEVER) do
        @mutex.synchronize do
          @debts << debt
          @thread ||= @engine.thread("settlement") { work }
          @changed.signal
        end
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
          @engine.say("giving back failed: #{e.full_message(highlight: false)}") unless e.is_a?(ConnectionLost)
          connection&.close
          connection = nil
        end
        @mutex.synchronize { finish(debt, done) }
      end
    end

    def finish(debt, done)
      now = Clock.now
      if done || now > debt.until
        @debts.delete_if { |other| other.equal?(debt) }
      else
        debt.next_at = now + debt.pause
        debt.pause = [debt.pause * 2, LONGEST_PAUSE].min
      end
    end

    # The next debt that is due; :idle after a while without any.
    def following
      @mutex.synchronize do
        loop do
          now = Clock.now
          debt = @debts.min_by(&:next_at)
          return debt if debt && debt.next_at <= now

          before = @debts.size
          @changed.wait(@mutex, debt ? [debt.next_at - now, IDLE].min : IDLE)
          return :idle if before.zero? && @debts.empty?
        end
      end
    end

    # Whether that is done with.
    def settle(debt, connection)
      patience = @engine.patience
      return settle_hold(debt, connection, patience) unless debt.id

      begin
        debt.request.keys.map { |key| connection.call(["lock.cancel", key, debt.id], patience) }
        true
      rescue ReplyError => e
        return !e.again? unless e.unknown_command?
        return true if debt.request.needs_module?

        by_script(debt, connection, patience)
      end
    end

    def settle_hold(debt, connection, patience)
      @engine.server.call(debt.command, needs_module: debt.request.needs_module?, connection:, timeout: patience)
      true
    rescue Unavailable
      true
    rescue ReplyError => e
      !e.again?
    end

    # A script cannot cancel, but the same ID gets its token again.
    def by_script(debt, connection, patience)
      reply = @engine.server.call(debt.request.again(debt.id), connection:, timeout: patience)
      token = reply.is_a?(Array) ? reply[0] : reply
      @engine.server.call(debt.request.release(token), connection:, timeout: patience) if token
      true
    rescue ReplyError => e
      !e.again?
    end
  end
end
