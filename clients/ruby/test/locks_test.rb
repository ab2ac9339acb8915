# frozen_string_literal: true

require_relative "support"

# Ruby's own exceptions, blocks, threads and errors, which the suite does not cover.
class LocksTest < LockTest
  def test_a_block_holds_the_lock_and_its_value_is_returned
    value = @locks.lock("report", lease: 30) do |held|
      assert_equal "held", state("report")
      assert_equal held.token, info("report")["token"]
      :done
    end
    assert_equal [:done, "free"], [value, state("report")]
  end

  def test_without_a_block_there_is_a_lock_object
    lock = @locks.lock("report", lease: 30)
    held = lock.acquire
    error = assert_raises(Serverlock::Refused) { lock.acquire }
    assert_equal ["report", :refused], [error.key, error.code]
    assert held.release
    assert_equal(1, lock.synchronize { 1 })
  end

  def test_recovering_a_free_lock_says_that_it_is_free
    error = assert_raises(Serverlock::Refused) { @locks.recover("work", lease: 30).acquire }
    assert_equal 'lock "work": there is nothing to recover: the lock is free', error.message
    held = @locks.lock("work", lease: 30).acquire
    error = assert_raises(Serverlock::Refused) { @locks.recover("work", lease: 30).acquire }
    assert_equal 'lock "work": somebody else has it', error.message
    assert held.release
  end

  def test_break_throw_and_return_release
    @locks.lock("a", lease: 30) { break }
    catch(:out) { @locks.lock("b", lease: 30) { throw :out } }
    leave_early
    assert_equal(%w[free free free], %w[a b c].map { |key| state(key) })
  end

  def test_the_command_that_keeps_a_lock_is_sent_again_if_its_connection_was_closed
    @locks.lock("report", lease: 30, at_least: 300) do
      @redis.call("client", "kill", "id", @locks.engine.client.call(%w[client id]))
    end
    assert_operator info("report")["lease-ms"], :>, 60_000
  end

  def leave_early
    @locks.lock("c", lease: 30) { return }
  end

  def test_the_callers_timeout_leaves_nothing_behind
    theirs = @redis.call("lock.acquire", "report", "PX", 30_000)
    assert_raises(Timeout::Error) { Timeout.timeout(0.2) { @locks.lock("report", lease: 30, wait: 60) { flunk } } }
    eventually("nobody waits") { info("report")["waiters"].zero? }
    @redis.call("lock.release", "report", theirs)
    assert_equal "free", state("report")
  end

  def test_the_callers_mask_applies_in_the_body
    struck = nil
    thread = Thread.new do
      Thread.handle_interrupt(RuntimeError => :never) do
        @locks.lock("report", lease: 30) do
          Thread.current[:in] = true
          sleep(0.01) until Thread.pending_interrupt?
          struck = false
        end
      end
    end
    thread.report_on_exception = false
    eventually("the thread is in the body") { thread[:in] }
    thread.raise("later")
    assert_raises(RuntimeError) { thread.join }
    assert_equal false, struck
    assert_equal "free", state("report")
  end

  def test_an_interrupt_that_came_too_late_stays_in_the_scope
    20.times do |number|
      @locks.lock("k#{number}", lease: 30, interrupt: true) { |held| held.hold.lose("tested") && sleep(0) }
      flunk
    rescue Serverlock::Lost
      Thread.pass
    end
  end

  def test_a_timed_out_wait_is_a_timeout_error
    @redis.call("lock.acquire", "report", "PX", 30_000)
    error = assert_raises(Timeout::Error) { @locks.lock("report", lease: 30, wait: 0.1).acquire }
    assert_kind_of Serverlock::Error, error
    assert_equal :timeout, error.code
  end

  def test_errors_survive_marshalling
    error = Marshal.load(Marshal.dump(Serverlock::Refused.new("text", key: "k")))
    assert_equal ["text", "k", :refused], [error.message, error.key, error.code]
  end

  def test_an_option_that_does_not_exist_is_an_error
    # The type checker of scripts/test-clients.sh finds most of these first.
    checked = defined?(RBS::Test) ? [RBS::Test::Tester::TypeError] : []
    assert_raises(ArgumentError, *checked) { @locks.lock("report", lease: 30, waits: 3) }
    assert_raises(ArgumentError, *checked) { @locks.lock("report") }
    assert_raises(Serverlock::BadArgument, *checked) { @locks.lock("report", lease: 30, wait: nil) }
    assert_raises(Serverlock::BadArgument, *checked) { @locks.lock(:report, lease: 30) }
    assert_raises(Serverlock::BadArgument) { Serverlock::Locks.new("redis://localhost") }
  end

  def test_another_threads_lock_is_refused_or_waited_for
    @locks.lock("report", lease: 30) do
      error = Thread.new { @locks.lock("report", lease: 30) { nil } rescue $! }.value # rubocop:disable Style/RescueModifier, Style/SpecialGlobalVars
      assert_instance_of Serverlock::Refused, error
      assert_raises(Serverlock::Misuse) { @locks.lock("report", lease: 30, wait: 60) { nil } }
    end
  end

  def test_a_failing_callback_does_not_hide_a_loss
    told = Thread::Queue.new
    logger = Logger.new(log = StringIO.new)
    locks = Serverlock::Locks.new(TestServer.redis, logger:, on_lost: ->(event) { told << event })
    held = locks.lock("report", lease: 0.3, on_lost: ->(_) { raise "broken" }).acquire
    @redis.del("report")
    assert_equal "report", told.pop.key
    eventually("it is logged") { log.string.include?("broken") }
    assert_raises(Serverlock::Lost) { held.check }
    locks.close
  end

  def test_a_missing_module_is_logged_once
    TestServer.without_module do |redis|
      logger = Logger.new(log = StringIO.new)
      locks = Serverlock::Locks.new(redis, logger:)
      3.times { locks.lock("report", lease: 30) { nil } }
      assert_equal 1, log.string.scan("does not have the lock module").size
      Serverlock::Locks.new(redis, logger: Logger.new(log = StringIO.new), warn_without_module: false)
                       .lock("report", lease: 30) { nil }
      assert_empty log.string
    end
  end

  def test_without_the_module_keys_may_be_named_like_options
    TestServer.without_module do |redis|
      locks = Serverlock::Locks.new(redis, warn_without_module: false)
      assert_equal(1, locks.lock("WAIT", lease: 30, owner: "WAIT") { 1 })
      assert_raises(Serverlock::Unavailable) { locks.lock("a", lease: 30, wait: 0.5, replicas: 1, replicas_within: 0.05) { 1 } }
      locks.lock("b", lease: 30, replicas: 1, replicas_within: 0.05).acquire
      flunk
    rescue Serverlock::Unavailable => e
      assert_includes e.message, "0 of 1 replicas"
    end
  end

  def test_without_the_module_replicas_must_confirm_a_grant_after_a_wait
    TestServer.without_module do |redis|
      locks = Serverlock::Locks.new(redis, warn_without_module: false)
      theirs = locks.lock("report", lease: 30).acquire
      waiting = Thread.new { locks.lock("report", lease: 30, wait: 60, replicas: 1, replicas_within: 0.05).acquire }
      waiting.report_on_exception = false
      eventually("it waits in the queue") { redis.zcard("report:queue:{report}") == 1 }
      theirs.release
      error = assert_raises(Serverlock::Unavailable) { waiting.value }
      assert_includes error.message, "0 of 1 replicas"
      eventually("it is released") { redis.exists("report", "report:queue:{report}").zero? }
    end
  end

  # The attempt is never notified, so in a queue it would wait behind others forever.
  def test_without_messages_an_attempt_polls_past_the_queue
    TestServer.without_module do |redis|
      redis.call("acl", "setuser", "app", "on", ">secret", "~*", "+@all", "-subscribe")
      url = "redis://app:secret@127.0.0.1:#{redis.connection[:port]}"
      locks = Serverlock::Locks.new(Redis.new(url:), warn_without_module: false)
      theirs = locks.lock("report", lease: 30).acquire
      listener = Thread.new { Redis.new(port: redis.connection[:port]).subscribe("theirs") { nil } }
      eventually("the other client has subscribed") { redis.pubsub(:numsub, "theirs")[1] == 1 }
      redis.evalsha(Serverlock::Portable::SHA, %w[report report:queue:{report}],
                    ["lock_acquire", 1000, 60_000, "PX", 1, "WAIT", 60_000, "ID", 7, "NOTIFY", "theirs"])
      waiting = Thread.new { locks.lock("report", lease: 30, wait: 60).acquire }
      theirs.release
      assert waiting.join(20)&.value&.release
      assert_equal 1, redis.zcard("report:queue:{report}"), "the other attempt still has its place"
      listener.kill
    end
  end

  def test_keys_get_no_expiry_where_that_could_evict_them
    TestServer.without_module do |redis|
      locks = Serverlock::Locks.new(redis, warn_without_module: false)
      locks.lock("a", lease: 30) { assert_operator redis.pttl("a"), :>, 60_000 }
      redis.config(:set, "maxmemory-policy", "volatile-lru")
      locks = Serverlock::Locks.new(redis, warn_without_module: false)
      locks.lock("a", lease: 30) { assert_equal(-1, redis.pttl("a")) }
    end
  end

  def test_a_killed_thread_releases_its_lock
    thread = Thread.new { @locks.lock("report", lease: 30) { sleep } }
    eventually("it is held") { state("report") == "held" }
    thread.kill
    eventually("it is free") { state("report") == "free" }
  end

  def test_a_pool_is_used
    require "connection_pool"
    pool = ConnectionPool.new(size: 2) { TestServer.redis }
    locks = Serverlock::Locks.new(pool)
    assert_equal 3, locks.lock("report", lease: 30) { 3 }
    wrapped = Serverlock::Locks.new(ConnectionPool::Wrapper.new(size: 2) { TestServer.redis })
    assert_equal 3, wrapped.lock("report", lease: 30) { 3 }
  end

  def test_a_renewal_does_not_wait_for_the_applications_connection
    client = TestServer.redis
    locks = Serverlock::Locks.new(client)
    held = locks.lock("report", lease: 1.5).acquire
    busy = Thread.new { client.call("blpop", "nothing", 1.9) }
    busy.join
    assert_operator held.check, :>, 0
    assert held.release
    locks.close
  end

  def test_a_lease_counts_from_its_turn_on_the_connection
    @redis.config(:resetstat)
    gate = @locks.engine.client.instance_variable_get(:@gate)
    occupied = Thread::Queue.new
    other = Thread.new { gate.with { (occupied << true) && sleep(2) } }
    occupied.pop
    held = @locks.lock("report", lease: 3).acquire
    other.join
    assert_operator held.left, :>, 1.7, "2.7 less the time since"
    refute_includes @redis.info("commandstats"), "lock.extend"
  end

  # Simulates a thread that did not run in between.
  def test_a_grant_whose_lease_expires_before_its_reply_arrives_is_requested_again
    replies = []
    @locks.engine.server.define_singleton_method(:call) do |command, **options, &sending|
      reply = super(command, **options, &sending)
      if command.acquires?
        replies << reply
        sleep(1.5) if replies.size == 1
      end
      reply
    end
    lost = Thread::Queue.new
    held = @locks.lock("report", lease: 0.4, on_lost: ->(one) { lost << one }).acquire
    assert_operator held.check, :>, 0
    assert_equal [2, held.token], [replies.size, replies[1]]
    assert held.release
    assert_empty lost
  end

  def test_each_acquire_of_a_reentrant_lock_needs_a_release
    lock = @locks.lock("report", lease: 30, reentrant: true)
    held = lock.acquire
    assert_same held, lock.acquire
    assert_same(held, lock.synchronize { |inner| inner })
    assert_equal "held", state("report"), "an inner scope releases nothing"
    assert held.release
    assert_equal "held", state("report")
    assert held.release
    assert_equal "free", state("report")
    assert_raises(Serverlock::Misuse) { held.release }
    refute_same held, newer = lock.acquire
    assert newer.release
    assert_equal 0, @locks.census["scopes"]
  end

  def test_the_outermost_scope_releases_what_was_acquired_in_it
    lock = @locks.all_of(%w[a b], lease: 30, reentrant: true)
    inner = lock.synchronize { |held| @locks.all_of(%w[b a], lease: 30, reentrant: true).acquire.tap { |it| assert_same held, it } }
    assert_equal "free", state("a")
    assert_raises(Serverlock::Misuse) { inner.release }
  end

  def test_a_reentrant_caller_gets_only_the_same_lock_again
    held = @locks.lock("report", lease: 30, reentrant: true).acquire
    assert_raises(Serverlock::Misuse) { @locks.lock("report", lease: 30).acquire }
    assert_raises(Serverlock::Misuse) { @locks.shared("report", lease: 30, reentrant: true).acquire }
    other = Thread.new { @locks.lock("report", lease: 30, reentrant: true).acquire }
    other.report_on_exception = false
    assert_raises(Serverlock::Refused) { other.value }
    assert held.release
  end

  def test_a_reentrant_hold_that_nothing_references_is_forgotten
    Thread.new do
      Thread.new { nil }.join
      take = -> { @locks.lock("report", lease: 0.6, reentrant: true).acquire && nil }
      take.call
      eventually("it is dropped") { GC.start || @locks.census["scopes"].zero? }
    end.join
    assert_equal 0, @locks.census["holds"]
  end

  def test_fibers_of_a_thread_are_one_caller
    @locks.lock("report", lease: 30) do
      assert_raises(Serverlock::Misuse) { Fiber.new { @locks.lock("report", lease: 30) { nil } }.resume }
    end
  end

  def test_an_enumerator_may_leave_its_scope_in_another_thread
    steps = Enumerator.new { |out| @locks.lock("report", lease: 30) { out << 1 } }
    assert_equal 1, steps.next
    assert_equal "held", state("report")
    assert_raises(StopIteration) { steps.next }
    assert_equal "free", state("report")
  end
end
