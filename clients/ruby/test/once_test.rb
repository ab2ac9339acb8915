# frozen_string_literal: true

require_relative "support"
require "connection_pool"

# Blocks that run once per period: how they end, and callers that are interrupted.
class OnceTest < LockTest
  # Far from the end of a window of one of these.
  PERIOD = [86_400, 100_000].find { |period| (((Time.now.to_f / period) + 0.5) % 1).between?(0.02, 0.98) }

  def setup
    super
    @locks = Serverlock::Locks.new(TestServer.redis, logger: Logger.new(IO::NULL))
  end

  def once(key = "job", **options, &)
    @locks.once(key, period: PERIOD, **options, &)
  end

  def window_ends
    now = @redis.time
    ((((now[0] + (now[1] / 1e6)) / PERIOD) + 0.5).floor + 0.5) * PERIOD
  end

  def kept?(key = "job")
    value = @redis.get(key)
    !value.nil? && (value[0, 17].to_f - window_ends).between?(-0.002, 0.7)
  end

  # Runs the block instead of the call with this command, once, and gives it the call.
  def instead_of(name, &instead)
    client = @locks.engine.client
    if name == "time"
      client.define_singleton_method(:time) do |key, &sending|
        singleton_class.send(:remove_method, :time)
        instead.call(-> { method(:time).unbind.bind_call(self, key, &sending) })
      end
    else
      client.define_singleton_method(:call) do |words, &sending|
        next super(words, &sending) unless words[0] == name && instead

        now = instead
        instead = nil
        sending&.call
        now.call(-> { super(words, &nil) })
      end
    end
  end

  def forget_the_time
    @locks.engine.server_clock.instance_variable_set(:@known, {})
  end

  # Makes the estimate of the server's clock old, and wrong by some seconds.
  def age(held, by: 601, off: 0)
    forget_the_time
    before = held.run.estimate
    held.run.estimate = Serverlock::Estimate.new(before.offset + off, before.doubt, before.asked - by)
  end

  # A thread that waits for an exception in a call.
  def stuck_in(name, runs: false)
    reached = Thread::Queue.new
    instead_of(name) do |call|
      call.call if runs
      reached << true
      Thread.handle_interrupt(RuntimeError => :on_blocking) { sleep(60) }
    end
    reached
  end

  def test_a_block_runs_or_does_not
    held = nil
    outcome = once do |it|
      held = it
      assert_equal [(window_ends / PERIOD).floor, false, "job"], [it.tick, it.recovered?, it.key]
      assert_operator it.check, :<=, 9
      :done
    end
    assert_equal %i[ran done], outcome.to_a
    assert_predicate self, :kept?
    refute_predicate held, :held?
    assert_raises(Serverlock::Lost) { held.check }
    assert_equal [:elsewhere, nil], once { flunk }.to_a
    assert_equal [:ran, 1], once("other").run { 1 }.to_a
  end

  def test_a_description_can_be_shared
    shared = once
    entered = Thread::Queue.new
    ends = Thread::Queue.new
    thread = Thread.new do
      shared.run do |held|
        entered << true
        ends.pop
        held.held?
      end
    end
    entered.pop
    2.times { assert_equal :elsewhere, shared.run { flunk }.outcome }
    ends << true
    assert_equal [:ran, true], thread.value.to_a
    assert_predicate self, :kept?
  end

  def test_a_block_that_does_not_end_normally_lets_others_run_the_tick
    [true, false].each do |rerun|
      assert_raises(KeyError) { once(rerun:) { raise KeyError } }
      catch(:out) { once(rerun:) { throw :out } }
      once(rerun:) { break }
      assert_raises(Timeout::Error) { Timeout.timeout(0.2) { once(rerun:) { sleep } } }
      entered = Thread::Queue.new
      thread = Thread.new { once(rerun:) { sleep if entered << true } }
      entered.pop
      thread.kill.join
      assert_equal "free", state("job")
    end
    once { next }
    assert_predicate self, :kept?
  end

  def test_a_block_may_release_its_lock
    assert_equal [:ran, true], once(&:release).to_a
    assert_equal "free", state("job")
  end

  def test_its_block_refuses_the_same_lock
    once do
      assert_raises(Serverlock::Misuse) { once { flunk } }
      assert_raises(Serverlock::Misuse) { @locks.lock("job", lease: 5).acquire }
      again = @locks.lock("job", lease: 5, reentrant: true)
      assert_raises(Serverlock::Misuse) { again.acquire }
      assert_raises(Serverlock::Misuse) { again.synchronize { flunk } }
    end
    @locks.close
    assert_raises(Serverlock::Misuse) { once { flunk } }
  end

  def test_bad_arguments_are_refused
    [[9.999, nil], [0, nil], ["60", nil], [10, 5.001], [60, 0], [60, 31]].each do |period, lease|
      error = assert_raises(Serverlock::BadArgument) { Serverlock::Once.new(@locks, "job", period:, lease:, rerun: true) }
      assert_match(/"job": (period|lease) /, error.message)
    end
    assert_raises(Serverlock::BadArgument) { Serverlock::Once.new(@locks, "job", period: 60, lease: nil, rerun: 1) }
    assert @locks.once("job", period: 10, lease: 5)
  end

  def test_options_that_make_no_sense_are_unknown
    skip "the signatures are checked first" if defined?(RBS::Test)
    %i[wait session details at_least].each { |name| assert_raises(ArgumentError, name) { once(name => 1) } }
  end

  def test_the_time_is_read_again_after_a_long_block
    { 500 => false, 601 => true }.each do |by, is_kept|
      once("job #{by}") { |held| age(held, by:, off: -20) }
      assert_equal is_kept, kept?("job #{by}")
    end
    once do |held|
      age(held)
      instead_of("time") { raise Serverlock::ReplyError, "ERR tested" }
    end
    assert_predicate self, :kept?, "the old estimate counts"
  end

  def test_a_caller_that_is_interrupted_in_the_last_extend_keeps_the_tick
    [false, true].each do |runs|
      key = "job #{runs}"
      reached = nil
      thread = Thread.new { once(key, lease: 60) { reached = stuck_in("lock.extend", runs:) } }
      thread.report_on_exception = false
      eventually("it is sent") { reached && !reached.empty? }
      thread.raise("tested")
      assert_raises(RuntimeError) { thread.join }
      eventually("it is kept") { kept?(key) }
    end
  end

  def test_a_caller_that_is_interrupted_while_it_asks_for_the_time_keeps_the_tick
    reached = nil
    thread = Thread.new do
      once(lease: 60) do |held|
        age(held)
        reached = stuck_in("time")
      end
    end
    thread.report_on_exception = false
    eventually("it is sent") { reached && !reached.empty? }
    thread.kill.join
    eventually("it is kept") { kept? }
  end

  def test_a_caller_that_is_interrupted_before_its_block_holds_nothing
    %w[lock.info lock.acquire time].each do |name|
      forget_the_time
      @locks.engine.server_clock.instance_variable_set(:@margin_asked, 0)
      reached = stuck_in(name, runs: name != "time")
      thread = Thread.new { once(lease: 60) { flunk } }
      thread.report_on_exception = false
      reached.pop
      thread.raise("tested")
      assert_raises(RuntimeError) { thread.join }
      eventually("the lock is free") { state("job") == "free" }
    end
    eventually("nothing is left") { @locks.census.values.all?(&:zero?) }
  end

  def test_a_renewal_in_flight_cannot_shorten_the_lease
    sent = Thread::Queue.new
    may_arrive = Thread::Queue.new
    # The renewal and the last EXTEND have a connection each.
    @locks = Serverlock::Locks.new(ConnectionPool.new(size: 5) { TestServer.redis })
    once("first") { nil } # its reply shows that the module is there
    server = @locks.engine.server
    server.define_singleton_method(:translate) do |command|
      sent << true
      may_arrive.pop
      super(command)
    end
    thread = Thread.new { once(lease: 12) { sent.pop } }
    sleep(0.1) until sent.num_waiting.positive? || !thread.alive?
    eventually("the block has ended") { sent.num_waiting.zero? }
    sleep(0.3)
    refute_predicate self, :kept?
    may_arrive << true
    thread.join
    assert_predicate self, :kept?
    sleep(0.1)
    assert_predicate self, :kept?
  end

  def test_no_extend_is_sent_once_a_hold_has_ended
    held = @locks.lock("job", lease: 30).acquire
    hold = held.hold
    held.release
    assert_nil hold.renewal
    assert_raises(Serverlock::Lost) { hold.send(:sending, nil) }
  end

  def test_a_slow_extend_does_not_lengthen_the_lease
    once(lease: 60) do
      instead_of("lock.extend") do |call|
        sleep(0.8)
        call.call
      end
    end
    assert_predicate self, :kept?
  end

  def test_a_lost_reply_to_the_last_extend_is_settled_in_the_background
    once(lease: 60) do
      instead_of("lock.extend") do |call|
        call.call
        raise Serverlock::ConnectionLost, "tested"
      end
    end
    assert_predicate self, :kept?
    assert_equal 1, @locks.census["debts"], "the last copy"
    eventually("it is sent") { @locks.census["debts"].zero? }
    assert_predicate self, :kept?
  end

  def test_an_extend_that_the_server_refuses_is_an_error
    once(lease: 60) { instead_of("lock.extend") { raise Serverlock::ReplyError, "GRACE lease too long" } }
    flunk
  rescue Serverlock::Unavailable => e
    assert_equal "job", e.key
    assert_equal 0, @locks.census["debts"]
  end

  def test_the_long_lease_is_corrected_for_the_margin
    @redis.config(:set, "lock.margin-ms", 9000)
    once(rerun: false) do
      assert_predicate self, :kept?
    end
    assert_predicate self, :kept?
  ensure
    @redis.config(:set, "lock.margin-ms", 1000)
  end

  def test_a_grant_in_the_next_window_has_its_long_lease
    @locks.engine.server_clock.read("job")
    known = @locks.engine.server_clock.instance_variable_get(:@known)
    # By this clock the window is about to end, and has ended once the lock is granted.
    known[nil] = Serverlock::Estimate.new(window_ends - 0.3 - Serverlock::Clock.now, 0.0, Serverlock::Clock.now)
    instead_of("lock.acquire") { |call| call.call.tap { sleep(0.4) } }
    tick = (window_ends / PERIOD).floor
    assert_equal([:ran, tick + 1], once(rerun: false, &:tick).to_a)
    assert_operator info("job")["lease-ms"], :>, PERIOD * 900
  end

  def test_the_time_is_not_requested_for_a_lock_that_is_lost
    asked = false
    assert_raises(Serverlock::Lost) do
      once do |held|
        age(held)
        instead_of("time") { asked = true }
        held.hold.lose("tested")
      end
    end
    refute asked
  end

  def test_a_tick_whose_process_died_is_recovered
    @redis.call("lock.acquire", "job", "PX", 1)
    outcome = eventually("the lock has expired") { (it = once(&:recovered?)).outcome != :elsewhere && it }
    assert_equal [:recovered, true], outcome.to_a
  end
end
