# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "minitest/autorun"
require_relative "waiting"
require "serverlock/testing"

# The in-memory server, as an application's tests use it.
class TestingTest < Minitest::Test
  def setup
    @server = Serverlock::Testing::Server.new
    @locks = @server.locks
    @others = @server.locks
  end

  def teardown
    [@locks, @others].each(&:close)
  end

  # Acquires in a thread. Returns it once the attempt is queued.
  def waiting(key, locks = @others, count: 1, **options)
    thread = Thread.new { locks.lock(key, lease: 30, wait: 600, **options).acquire }
    thread.report_on_exception = false
    queued(key, count)
    thread
  end

  def queued(key, count)
    Waiting.until("#{count} wait for #{key}") { @server.waiting(key) == count }
  end

  def test_managers_of_one_server_exclude_each_other
    assert_instance_of Serverlock::Locks, @locks
    first = @locks.lock("report", lease: 30) do |held|
      assert_raises(Serverlock::Misuse) { @locks.lock("report", lease: 30).acquire }
      assert_raises(Serverlock::Refused) { @others.lock("report", lease: 30).acquire }
      held.token
    end
    assert_operator @others.lock("report", lease: 30, &:token), :>, first
    Serverlock::Testing::Server.new.locks.lock("report", lease: 30) { @locks.lock("report", lease: 30) { nil } }
  end

  def test_waiters_are_served_in_order_and_a_second_one_waits_with_messages
    held = @locks.lock("report", lease: 30).acquire
    waiters = (1..3).map { |count| waiting("report", count:) }
    tokens = waiters.map do |waiter|
      assert held.release
      held = waiter.value
      held.token
    end
    assert_equal tokens.sort, tokens
  end

  def test_a_writer_waits_for_readers_and_a_limit_counts_holders
    readers = [@locks, @others].map { |locks| locks.shared("page", lease: 30).acquire }
    writer = waiting("page")
    reader = Thread.new { @locks.shared("page", lease: 30, wait: 600).acquire }
    queued("page", 2)
    readers.each(&:release)
    assert_raises(Serverlock::Refused) { @others.shared("page", lease: 30).acquire if writer.value }
    assert writer.value.release
    assert reader.value.release
    2.times { @locks.limit("pool", 2, lease: 30).acquire }
    assert_raises(Serverlock::Refused) { @locks.limit("pool", 2, lease: 30).acquire }
  end

  def test_several_keys_wait_for_each_of_them
    held = %w[a b].to_h { |key| [key, @locks.lock(key, lease: 30).acquire] }
    waiter = Thread.new { @others.all_of(%w[a b], lease: 30, wait: 600).acquire }
    queued("a", 1)
    held["a"].release
    queued("b", 1)
    held["b"].release
    all = waiter.value
    assert_raises(Serverlock::Refused) { @locks.lock("a", lease: 30).acquire }
    assert_in_delta 29, all.verify, 3
    assert all.release
  end

  def test_time_passes_only_when_the_test_says_so
    held = @locks.lock("report", lease: 30, max_hold: 40).acquire
    assert_equal 27.0, held.left
    @server.clock.advance(50)
    assert held.check.positive?, "it was renewed"
    @server.clock.advance(20)
    assert_raises(Serverlock::Lost) { held.check }
    refute held.release
    assert_raises(Serverlock::BadArgument) { @server.clock.advance(-1) }
  end

  def test_sums_of_times_are_exact
    @locks.lock("report", lease: 1, max_hold: 0).acquire
    19.times { @server.clock.advance(0.1) }
    assert_raises(Serverlock::Refused) { @others.lock("report", lease: 30).acquire }
    @server.clock.advance(0.1) # lease and margin
    assert @others.lock("report", lease: 30).acquire
  end

  def test_waits_end_in_chronological_order
    @locks.lock("report", lease: 30).acquire
    ends = Queue.new
    waiters = [5, 3, 4].each_with_index.map do |seconds, index|
      thread = Thread.new do
        @others.lock("report", lease: 30, wait: seconds).acquire
      rescue Serverlock::TimedOut
        ends << seconds
      end
      queued("report", index + 1)
      thread
    end
    @server.clock.advance(4)
    assert_equal [3, 4], [ends.pop, ends.pop]
    assert_predicate waiters[0], :alive?
    @server.clock.advance(1)
    assert_equal 5, ends.pop
  end

  def test_a_waiter_gets_a_lock_whose_lease_ends_and_renews_its_own
    @locks.lock("report", lease: 3, max_hold: 0).acquire
    waiter = waiting("report", details: true)
    @server.clock.advance(600 - 1)
    assert_predicate waiter.value, :held?
    assert_equal 0.0, waiter.value.predecessor.overdue
  end

  def test_a_lock_that_expires_goes_to_the_next_waiter_and_its_holder_finds_out_when_it_renews
    lost = Queue.new
    held = @locks.lock("report", lease: 30, on_lost: ->(it) { lost << it.token }).acquire
    waiter = waiting("report", details: true)
    @server.expire("report")
    assert_equal held.token, waiter.value.predecessor.token
    assert_predicate held, :held?
    @server.clock.advance(11)
    assert_equal held.token, lost.pop(true), "advance waits for callbacks"
    refute held.release
  end

  def test_an_expired_lock_can_be_recovered
    held = @locks.lock("report", lease: 30).acquire
    assert_raises(Serverlock::Refused) { @others.recover("report", lease: 30).acquire }
    @server.expire("report")
    assert_raises(Serverlock::Lost) { held.verify }
    recovered = @others.recover("report", lease: 30).acquire
    assert_equal held.token, recovered.predecessor.token
    recovered.release
    error = assert_raises(Serverlock::Refused) { @others.recover("report", lease: 30).acquire }
    assert_match(/is free/, error.message)
  end

  def test_a_lost_hold_is_reported_at_once_and_its_keys_are_free
    lost = Queue.new
    held = @locks.all_of(%w[a b], lease: 30, on_lost: ->(it) { lost << it.token }).acquire
    waiter = waiting("b")
    @server.lose(held)
    assert_equal held.token, lost.pop(true)
    assert_raises(Serverlock::Lost) { held.check }
    assert_predicate waiter.value, :held?
    assert @locks.lock("a", lease: 30).acquire
  end

  def test_a_loss_interrupts_a_block
    assert_raises(Serverlock::Lost) do
      @locks.lock("report", lease: 30, interrupt: true) do |held|
        Thread.new { @server.lose(held) }
        sleep
      end
    end
  end

  def test_a_refused_key_fails_at_once_until_it_is_allowed
    held = @locks.lock("report", lease: 30).acquire
    waiters = [waiting("report"), waiting("report", count: 2)]
    @server.refuse("report")
    waiters.each { |waiter| assert_raises(Serverlock::Unavailable) { waiter.value } }
    assert_raises(Serverlock::Unavailable) { @others.lock("report", lease: 30, wait: 60).acquire }
    assert_raises(Serverlock::Unavailable) { held.extend }
    assert_predicate held, :held?
    @server.clock.advance(27)
    refute_predicate held, :held?
    @server.refuse("report", error: :denied)
    assert_raises(Serverlock::Denied) { @others.lock("report", lease: 30, wait: 60).acquire }
    @server.allow("report")
    assert_raises(Serverlock::BadArgument) { @server.refuse("report", error: :lost) }
    @server.clock.advance(4)
    assert @others.lock("report", lease: 30).acquire
  end

  def test_a_tick_runs_once
    outcomes = [@locks, @others].map { |locks| locks.once("job", period: 60) { :done }.outcome }
    assert_equal %i[ran elsewhere], outcomes
    @server.clock.advance(60)
    assert_equal :ran, @others.once("job", period: 60) { :done }.outcome
  end

  def test_a_leader_is_elected_and_deposed
    events = Queue.new
    leader = @locks.leader("chief", lease: 30, on_elected: ->(_) { events << :elected }, on_deposed: ->(_) { events << :deposed })
    leader.start
    assert_equal :elected, events.pop
    @server.expire("chief")
    @others.lock("chief", lease: 30).acquire
    @server.clock.advance(11)
    assert_equal :deposed, events.pop
    refute_predicate leader, :leader?
    leader.stop
  end

  def test_the_locks_of_a_session_end_with_it
    @locks.lock("report", lease: 30, session: true).acquire
    waiter = waiting("other", @locks, session: true) if @others.lock("other", lease: 600).acquire
    @locks.close
    assert_raises(Serverlock::Misuse) { waiter.value }
    queued("other", 0)
  end

  def test_what_it_does_not_have_is_unavailable
    [{ replicas: 1 }, { fsync: true }].each do |options|
      assert_raises(Serverlock::Unavailable) { @locks.lock(options.inspect, lease: 30, **options).acquire }
    end
    held = @locks.lock("report", lease: 30).acquire
    error = assert_raises(Serverlock::Unavailable) { held.fenced("SET", "result", "42") }
    assert_match(/no SET/, error.message)
    @server.expire("report")
    assert_raises(Serverlock::Lost) { held.fenced("SET", "result", "42") }
  end

  def test_a_cancelled_attempt_leaves_nothing
    held = @locks.lock("report", lease: 30).acquire
    waiters = [waiting("report"), waiting("report", count: 2)]
    waiters.each(&:kill).each(&:join)
    queued("report", 0)
    held.release
    assert @locks.lock("report", lease: 30).acquire
  end

  def test_advance_does_not_wait_for_a_thread_that_waits_for_something_else
    held = @locks.lock("report", lease: 30).acquire
    gate = Queue.new
    thread = Thread.new do
      @others.lock("report", lease: 30, wait: 600) { gate.pop }
    end
    queued("report", 1)
    held.release
    @server.clock.advance(1)
    gate << true
    assert thread.value
  end
end
