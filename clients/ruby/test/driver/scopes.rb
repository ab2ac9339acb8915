# frozen_string_literal: true

# A scope, whose body carries out the orders in its queue.
class Body
  attr_accessor :held, :thread, :once, :flight, :reentrant, :locks
  attr_reader :orders, :workers

  def initialize
    @orders = Queue.new
    @workers = {}
  end
end

# The orders for scopes: each body runs in its own thread, or in a forked child.
module Scopes
  private

  def do_scope(order)
    body = Body.new
    body.reentrant = order.fetch("reentrant", false)
    me = Process.pid
    begin
      lock(order, on_lost: lost(order, :scope), interrupt: !order["stays"]).synchronize { |held| scope(order, body, held) }
    rescue Exception # rubocop:disable Lint/RescueException
      raise if Process.pid == me
    end
    child(body) if Process.pid != me
    nil
  end

  def do_once(order)
    options = { period: order["period_ms"] / 1000.0, interrupt: true }
    options[:owner] = order["owner"] if order.key?("owner")
    options[:rerun] = order["rerun"] if order.key?("rerun")
    options[:lease] = order["lease_ms"] / 1000.0 if order["lease_ms"]
    options[:max_hold] = order["max_hold_ms"] / 1000.0 if order["max_hold_ms"]
    options[:on_lost] = lost(order, :scope) if order["scope"]
    once = @managers[order["manager"]].once(key(order["key"]), **options)
    return once.run { |held| "tick #{held.tick}" }.to_h unless order["scope"]

    body = Body.new
    body.once = once
    { outcome: once.run { |held| scope(order, body, held) }.outcome }
  end

  def scope(order, body, held)
    body.held = held
    body.locks = @managers[order["manager"]]
    body.thread = Thread.current
    @scopes[order["scope"]] = body
    say(event: "entered", scope: order["scope"], token: held.token)
    stopped = false
    loop do
      if order["stays"] && !stopped && !held.held?
        stopped = true
        say(event: "stopped", scope: order["scope"])
      end
      act = order["stays"] && body.orders.empty? ? sleep(0.01) && next : body.orders.pop
      return if act.call == :leave
    end
  rescue Serverlock::Lost
    say(event: "stopped", scope: order["scope"])
    raise
  end

  # Sends an order to the body of a scope, and waits for the result.
  def within(order, queue = @scopes[order["scope"]].orders)
    done = Queue.new
    queue << lambda do
      done << [true, yield]
    rescue StandardError, Cancelled => e
      done << [false, e]
    end
    went_well, result = done.pop
    went_well ? result : raise(result)
  end

  def do_leave(order)
    @scopes[order["scope"]].orders << -> { :leave }
    nil
  end

  def do_fail(order)
    @scopes[order["scope"]].orders << -> { raise Work, "the body failed" }
    nil
  end

  def do_spawn(order)
    within(order) do
      orders = Queue.new
      Thread.new { loop { orders.pop.call } }
      @scopes[order["scope"]].workers[order["worker"]] = orders
      nil
    end
  end

  def do_again(order)
    body = @scopes[order["scope"]]
    queue = order["worker"] ? body.workers[order["worker"]] : body.orders
    within(order, queue) do
      next { outcome: body.once.run { nil }.outcome } if body.once
      next single_flight(body.flight) if body.flight

      lock = body.locks.lock(body.held.key, lease: 30, reentrant: body.reentrant)
      order["nested"] ? lock.synchronize { |held| { token: held.token } } : kept(order, lock.acquire)
    end
  end

  def do_fork(order)
    reader, writer = IO.pipe
    body = @scopes[order["scope"]]
    body.orders << lambda do
      pid = fork
      next Process.detach(pid) if pid

      @said = writer
      @manager = order["manager"]
      :leave
    end
    writer_of_parent = writer
    answer = Thread.new { reader.gets }
    sleep(0.01) until answer.join(0.1)
    writer_of_parent.close
    JSON.parse(answer.value)
  end

  # The forked child: checks its parent's lock, takes one of its own, and exits.
  def child(body)
    check = begin
      body.held.check
      "held"
    rescue Serverlock::Error => e
      e.code
    end
    own = @managers[@manager].lock("own", lease: 30).acquire.release
    @said.puts(JSON.generate(check:, own:))
    @said.flush
    exit!(0)
  end
end
