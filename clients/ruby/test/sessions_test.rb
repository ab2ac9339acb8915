# frozen_string_literal: true

require_relative "support"

# The connections of session locks. Exceptions that strike while an attempt waits end that attempt, and no other lock.
class SessionsTest < LockTest
  def session(key)
    info(key)["session"]
  end

  def clients
    @redis.client(:list).map { |client| client["id"] }
  end

  def connected?(session)
    clients.include?(session.to_s)
  end

  def wanted
    @locks.lock("b", lease: 60, wait: 60, session: true)
  end

  def test_an_interrupted_wait_keeps_the_other_locks_of_the_session
    theirs = @redis.call("lock.acquire", "b", "PX", 600_000)
    dice = Random.new(11)
    held = @locks.lock("a", lease: 60, session: true).acquire
    session = session("a")
    20.times do
      assert_raises(Timeout::Error) { Timeout.timeout(0.02 + (0.03 * dice.rand)) { wanted.acquire } }
    end
    eventually("nobody waits") { info("b")["waiters"].zero? }
    held.check
    assert_equal session, session("a")
    @redis.call("lock.release", "b", theirs)
    eventually("the session is free again") do
      got = wanted.acquire
      shared = session("b") == session
      assert got.release
      shared
    end
    assert held.release
    eventually("its connection is closed") { !connected?(session) }
    assert_equal 0, @locks.census["sessions"]
  end

  def test_a_killed_thread_leaves_no_session
    @redis.call("lock.acquire", "b", "PX", 600_000)
    thread = Thread.new { @locks.lock("a", lease: 60, session: true) { wanted.acquire } }
    eventually("it waits") { info("b")["waiters"] == 1 }
    thread.kill
    eventually("nobody waits") { info("b")["waiters"].zero? }
    eventually("the lock is released") { info("a")["state"] == "free" }
    eventually("no session is left") { @locks.census["sessions"].zero? }
  end

  def test_an_attempt_that_is_refused_leaves_no_session
    @redis.call("lock.acquire", "b", "PX", 600_000)
    before = clients
    GC.disable # it closes connections
    assert_raises(Serverlock::Refused) { @locks.lock("b", lease: 60, session: true).acquire }
    eventually("its connection is closed") { (clients - before).empty? }
    assert_raises(Serverlock::TimedOut) { @locks.lock("b", lease: 60, wait: 0.05, session: true).acquire }
    assert_raises(Timeout::Error) { Timeout.timeout(0.05) { wanted.acquire } }
    assert_equal 0, @locks.census["sessions"]
    eventually("nobody waits") { info("b")["waiters"].zero? }
  ensure
    GC.enable
  end

  def test_another_lock_of_the_same_caller_gets_a_new_connection_while_one_is_in_use
    held = @locks.lock("a", lease: 60, session: true).acquire
    @locks.engine.sessions.instance_variable_get(:@sessions)[0].user = :an_attempt
    other = @locks.lock("c", lease: 60, session: true).acquire
    refute_equal session("a"), session("c")
    assert_equal [true, true], [held.release, other.release]
  end

  def test_a_manager_that_is_closed_ends_the_waits_and_the_locks_of_their_sessions
    @redis.call("lock.acquire", "b", "PX", 600_000)
    held = Thread::Queue.new
    waiting = Thread.new do
      held << @locks.lock("a", lease: 600, session: true).acquire
      wanted.acquire
    end
    waiting.report_on_exception = false
    held = held.pop
    idle = @locks.lock("c", lease: 600, session: true).acquire
    eventually("it waits") { info("b")["waiters"] == 1 }
    @locks.close
    assert_raises(Serverlock::Misuse) { waiting.value }
    assert_raises(Serverlock::Lost) { held.check }
    idle.check
    assert idle.release
  end

  # The reply to an interrupted wait is still to come, and the server does not answer. Nobody will read it.
  def test_a_manager_that_is_closed_before_a_reply_is_read_loses_the_session
    pid = @redis.info["process_id"].to_i
    locks = Serverlock::Locks.new(TestServer.redis(timeout: 0.3))
    @redis.call("lock.acquire", "b", "PX", 600_000)
    held = nil
    waiting = Thread.new do
      held = locks.lock("a", lease: 600, session: true).acquire
      locks.lock("b", lease: 60, wait: 60, session: true).acquire
    end
    waiting.report_on_exception = false
    eventually("it waits") { info("b")["waiters"] == 1 }
    begin
      Process.kill(:STOP, pid)
      waiting.raise("interrupted")
      assert_raises(RuntimeError) { waiting.value }
      held.check
      locks.close
      assert_raises(Serverlock::Lost) { held.check }
    ensure
      Process.kill(:CONT, pid)
    end
  end

  def test_a_reply_that_does_not_arrive_ends_the_session
    pid = @redis.info["process_id"].to_i
    locks = Serverlock::Locks.new(TestServer.redis(timeout: 0.3))
    lost = Thread::Queue.new
    held = locks.lock("a", lease: 600, session: true, on_lost: ->(it) { lost << it }).acquire
    begin
      Process.kill(:STOP, pid)
      assert_raises(Timeout::Error) { Timeout.timeout(0.1) { locks.lock("b", lease: 60, session: true).acquire } }
      eventually("it is lost") { lost.size == 1 }
      assert_same held, lost.pop
    ensure
      Process.kill(:CONT, pid)
    end
    assert_raises(Serverlock::Lost) { held.check }
    locks.close
  end

  def test_an_idle_session_that_ends_loses_its_locks
    lost = Thread::Queue.new
    held = %w[a b].map { |key| @locks.lock(key, lease: 600, session: true, on_lost: ->(it) { lost << it.key }).acquire }
    @redis.call("client", "kill", "id", session("a"))
    eventually("both are lost") { lost.size == 2 }
    assert_equal %w[a b], [lost.pop, lost.pop].sort
    held.each { |it| assert_raises(Serverlock::Lost) { it.check } }
    assert_equal 0, @locks.census["sessions"]
    newer = @locks.lock("c", lease: 600, session: true).acquire
    assert newer.release
  end

  def test_the_connection_of_a_dropped_hold_is_closed_with_the_last_one
    other = nil
    Thread.new do
      Thread.new { nil }.join
      take = -> { @locks.lock("a", lease: 0.6, session: true).acquire && nil }
      take.call
      other = @locks.lock("b", lease: 60, session: true).acquire
      assert_equal session("a"), session("b")
      eventually("it is dropped") { GC.start || @locks.census["holds"] == 1 }
    end.join
    session = session("b")
    other.check
    assert other.release
    eventually("its connection is closed") { !connected?(session) }
    assert_equal 0, @locks.census["sessions"]
  end

  # In a scope the package refuses it. This hold has none, so the server finds the cycle.
  def test_one_caller_cannot_wait_for_itself
    kept = @locks.lock("b", lease: 60, session: true).acquire
    error = assert_raises(Serverlock::Deadlock) { wanted.acquire }
    assert_equal [:deadlock, "b"], [error.code, error.key]
    kept.check
    assert kept.release
  end

  def test_a_wait_that_is_cancelled_on_the_server_is_refused
    @redis.call("lock.acquire", "b", "PX", 600_000)
    @locks.engine.define_singleton_method(:id) { 42 }
    waiting = Thread.new { wanted.acquire }
    waiting.report_on_exception = false
    eventually("it waits") { info("b")["waiters"] == 1 }
    @redis.call("lock.cancel", "b", 42)
    assert_raises(Serverlock::Refused) { waiting.value }
  end

  def test_a_role_change_ends_the_session
    held = @locks.lock("a", lease: 60, session: true).acquire
    @redis.call("replicaof", "127.0.0.1", 1)
    assert_raises(Serverlock::Unavailable) { @locks.lock("b", lease: 60, session: true).acquire }
    assert_raises(Serverlock::Lost) { held.check }
  ensure
    @redis.call("replicaof", "no", "one")
  end

  # Session tickets and key updates make the socket readable, but there is nothing to read.
  def test_what_arrives_within_tls_is_not_a_reply
    ours, theirs = UNIXSocket.pair
    stream = Class.new(OpenSSL::SSL::SSLSocket) do
      def read_nonblock(*, **)
        to_io.recv(100) == "a reply" ? "-" : :wait_readable
      end

      def ungetc(byte)
        @back = byte
      end
      attr_reader :back
    end.new(ours)
    connection = Struct.new(:stream) { include Serverlock::Exchange }.new(stream)
    theirs.write("a ticket")
    refute connection.reply?(0.05)
    theirs.write("a reply")
    assert connection.reply?(60)
    assert_equal "-", stream.back
  end
end
