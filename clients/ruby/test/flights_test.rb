# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "minitest/autorun"
require_relative "waiting"
require "serverlock/testing"

# One result for many callers, on the in-memory server.
class FlightsTest < Minitest::Test
  def setup
    @server = Serverlock::Testing::Server.new
    @managers = []
  end

  def teardown
    @managers.each(&:close)
  end

  def locks
    @managers << @server.locks
    @managers.last
  end

  def ask(locks, key = "page", **options, &block)
    thread = Thread.new { locks.single_flight(key, lease: 30, wait: 600, **options, &block || proc { "computed" }) }
    thread.report_on_exception = false
    thread
  end

  def queued(count, key = "page")
    Waiting.until("#{count} wait") { @server.waiting(key) == count }
  end

  def take(key = "page")
    @server.call("lock.acquire", key, "PX", 30_000, "ID", 1)
  end

  def test_attempts_of_all_kinds_get_the_result
    token = take
    alone = ask(locks)
    queued(1)
    two = locks
    notified = [ask(two), ask(two, "other-1"), ask(two, "other-2")] # several keys: with messages
    queued(2)
    plain = Thread.new { locks.lock("page", lease: 30, wait: 600).acquire }
    queued(3)
    assert_equal 1, @server.call("lock.release", "page", token, "RESULT", "42\xFF".b)
    assert_equal ["42\xFF".b] * 2, [alone.value, notified[0].value]
    assert_equal %w[computed computed], notified.drop(1).map(&:value)
    assert plain.value.release
  end

  def test_the_message_names_the_result_and_copies_get_it_for_two_seconds
    token = take
    ask = ["lock.acquire", "page", "PX", 30_000, "ID", 7, "WAIT", 60_000, "NOTIFY", "c", "RESULT"]
    assert_equal "WAITING", @server.call(*ask)
    heard = []
    memory = @server.instance_variable_get(:@memory)
    memory.subscribe("c", Struct.new(:heard) { def deliver(message) = heard << message }.new(heard))
    @server.call("lock.release", "page", token, "RESULT", "42")
    assert_equal ["result 7 page"], heard
    assert_equal 0, @server.call("lock.cancel", "page", 7), "a cancel does not take it back"
    2.times { assert_equal ["42"], @server.call(*ask) }
    @server.clock.advance(2.1)
    assert_kind_of Integer, @server.call(*ask), "a new attempt"
  end

  def test_a_release_in_time_is_needed
    token = take
    waiting = ask(locks)
    queued(1)
    @server.expire("page")
    assert_equal "computed", waiting.value
    assert_equal 0, @server.call("lock.release", "page", token, "RESULT", "42")
  end

  def test_results_have_a_limit
    token = take
    error = assert_raises(Serverlock::ReplyError) { @server.call("lock.release", "page", token, "RESULT", "x" * 65_537) }
    assert_equal "ERR result is longer than 65536 bytes, the limit lock.result-max", error.message
    assert_equal 1, @server.call("lock.release", "page", token, "RESULT", "x" * 65_536)
  end

  def test_a_callers_wait_ends_on_the_clock
    take
    one = locks
    first = ask(one, wait: 10)
    queued(1)
    second = ask(one, wait: 20)
    Waiting.until("both have joined") { one.census["flights"] == 2 }
    @server.clock.advance(11)
    assert_raises(Serverlock::TimedOut) { first.value }
    queued(1)
    assert_predicate second, :alive?
    @server.clock.advance(10)
    assert_raises(Serverlock::TimedOut) { second.value }
    assert_equal 0, one.census["flights"]
  end
end
