# frozen_string_literal: true

require_relative "support"
require "connection_pool"

# A manager's only wait blocks on one connection that is kept. Once others are waiting too, all wait with NOTIFY.
class LoneTest < LockTest
  def wait_for_it(seconds = 60)
    Thread.new { @locks.lock("report", lease: 30, wait: seconds).acquire }
  end

  def queued(count)
    eventually("#{count} wait") { info("report")["waiters"] == count }
  end

  def calls(command)
    text = @redis.info("commandstats")[command]
    text ? Integer(text["calls"]) : 0
  end

  def test_the_only_wait_blocks_on_a_connection_that_is_kept
    3.times do |round|
      theirs = @redis.call("lock.acquire", "report", "PX", 60_000)
      @redis.config(:resetstat)
      waiting = wait_for_it
      queued(1)
      @redis.call("lock.release", "report", theirs)
      assert waiting.value.release
      asked = round.zero? ? 2 : 1 # the connection is not open in the first round
      assert_equal [asked, 2, 0], %w[lock.acquire lock.release subscribe].map { |command| calls(command) }, "round #{round}"
    end
    assert_equal [0, 0], @locks.census.values_at("blocking", "slots")
  end

  def test_once_a_second_attempt_waits_nobody_blocks
    theirs = @redis.call("lock.acquire", "report", "PX", 60_000)
    first = wait_for_it
    queued(1)
    second = wait_for_it
    queued(2)
    eventually("nobody blocks") { @redis.info("clients")["blocked_clients"] == "0" }
    queued(2)
    @redis.call("lock.release", "report", theirs)
    assert first.value.release
    assert second.value.release
    third = wait_for_it
    assert third.value.release
    assert_equal 0, @locks.census["waits"]
  end

  def test_a_wait_that_is_cancelled_is_refused
    @redis.call("lock.acquire", "report", "PX", 60_000)
    @locks.engine.define_singleton_method(:id) { 4711 }
    waiting = wait_for_it
    waiting.report_on_exception = false
    queued(1)
    @redis.call("lock.cancel", "report", 4711)
    error = assert_raises(Serverlock::Refused) { waiting.value }
    assert_match(/cancelled/, error.message)
  end

  def test_a_wait_that_is_killed_leaves_nothing
    theirs = @redis.call("lock.acquire", "report", "PX", 60_000)
    waiting = wait_for_it
    queued(1)
    waiting.kill.join
    queued(0)
    @redis.call("lock.release", "report", theirs)
    assert wait_for_it.value.release
  end

  def test_it_takes_one_more_connection
    @locks.close
    @locks = Serverlock::Locks.new(TestServer.redis(id: "lone")) # managers of other tests may connect at any time
    connected = -> { @redis.client(:list).count { |client| client["name"] == "lone" } }
    @redis.call("lock.acquire", "report", "PX", 60_000)
    wait_for_it.report_on_exception = false
    queued(1)
    assert_equal 2, connected.call, "including the application's"
    @locks.close
    eventually("the connection is closed") { connected.call == 1 }
  end

  def test_a_lost_connection_does_not_end_the_wait
    theirs = @redis.call("lock.acquire", "report", "PX", 60_000)
    waiting = wait_for_it
    queued(1)
    blocked = @redis.client(:list).find { |client| client["flags"].include?("b") }
    @redis.call("client", "kill", "id", blocked["id"])
    eventually("the wait blocks again") do
      @redis.client(:list).any? { |client| client["flags"].include?("b") && client["id"] != blocked["id"] }
    end
    queued(1)
    @redis.call("lock.release", "report", theirs)
    assert waiting.value.release
  end

  def test_close_ends_the_wait
    @redis.call("lock.acquire", "report", "PX", 60_000)
    waiting = wait_for_it(600)
    waiting.report_on_exception = false
    queued(1)
    @locks.close
    assert_raises(Serverlock::Misuse) { waiting.value }
    queued(0)
  end

  def test_over_a_pool_it_takes_one_slot
    pool = ConnectionPool.new(size: 5) { TestServer.redis }
    locks = Serverlock::Locks.new(pool)
    theirs = @redis.call("lock.acquire", "report", "PX", 60_000)
    waiting = Thread.new { locks.lock("report", lease: 30, wait: 60).acquire }
    queued(1)
    assert_equal 0, locks.census["slots"]
    storm = Array.new(8) { |number| Thread.new { 20.times { locks.lock("own #{number}", lease: 30).acquire.release } } }
    storm.each(&:value)
    @redis.call("lock.release", "report", theirs)
    assert waiting.value.release
    assert_equal 0, locks.census["slots"]
  ensure
    locks.close
  end
end
