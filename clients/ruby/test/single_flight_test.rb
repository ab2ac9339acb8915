# frozen_string_literal: true

require_relative "support"
require "connection_pool"
require "serverlock/testing"

# One result for many callers: what is sent, who computes, and callers that are interrupted.
class SingleFlightTest < LockTest
  RESULT = "42 \0pages\xFF".b
  # A caller that was interrupted.
  class Cancelled < Exception # rubocop:disable Lint/InheritException
  end

  def setup
    super
    @hooks = Thread::Queue.new
    hooks = %i[granted refused lost released].to_h { |it| [:"on_#{it}", ->(_) { @hooks << it }] }
    @others = Serverlock::Locks.new(TestServer.redis, **hooks)
  end

  def teardown
    super
    @others.close
  end

  def hooks
    Array.new(@hooks.size) { @hooks.pop }
  end

  def calls(command)
    text = @redis.info("commandstats")[command]
    text ? Integer(text["calls"]) : 0
  end

  def queued(count, key = "page")
    eventually("#{count} wait for #{key}") { info(key)["waiters"] == count }
  end

  # Asks in a thread, whose value is that of the call.
  def ask(locks = @locks, key = "page", **options, &block)
    thread = Thread.new { locks.single_flight(key, lease: 600, **options, &block || proc { "computed" }) }
    thread.report_on_exception = false
    thread
  end

  # Computes in a thread until something is put into the queue: the value, or a proc to call instead.
  def computing(locks = @locks, key = "page", **options)
    ends = Thread::Queue.new
    begun = Thread::Queue.new
    thread = ask(locks, key, **options) do |held|
      begun << held
      value = ends.pop
      value.is_a?(Proc) ? value.call : value
    end
    [thread, ends, begun.pop]
  end

  def joined(count, locks = @locks)
    eventually("#{count} callers have joined") { locks.census["flights"] == count }
  end

  def nobody_computes
    proc { flunk "it computes" }
  end

  def test_one_computes_and_the_others_get_the_same_bytes
    [RESULT, "", "WAITING", "granted"].each do |result|
      holder, ends, held = computing
      @redis.config(:resetstat)
      waiting = ask(@others, &nobody_computes)
      queued(1)
      ends << result
      values = [holder, waiting].map(&:value)
      assert_equal [result.b, result.b], values
      assert_equal [Encoding::BINARY, Encoding::BINARY], values.map(&:encoding)
      refute values[1].frozen?
      assert_equal "free", state("page")
      assert_raises(Serverlock::Misuse) { held.release }
      assert_equal [0, 1], [calls("lock.cancel"), calls("lock.release")]
    end
    assert_empty hooks, "an attempt that ends with a result calls no hook"
  end

  def test_results_are_announced_on_the_channel
    keys = %w[a b c]
    values = [RESULT, "WAITING", ""]
    holders = keys.map { |key| computing(@locks, key) }
    waiting = keys.map { |key| ask(@others, key, &nobody_computes) }
    keys.each { |key| queued(1, key) }
    eventually("nobody blocks") { @redis.info("clients")["blocked_clients"] == "0" }
    keys.each { |key| queued(1, key) }
    @redis.config(:resetstat)
    holders.zip(values) { |(_, ends, _), value| ends << value }
    assert_equal values, waiting.map(&:value)
    assert_equal [0, 3], [calls("lock.cancel"), calls("lock.acquire")]
    assert_empty hooks
    assert_equal 0, @others.census["waits"]
  end

  def test_the_callers_of_a_manager_share_one_attempt
    holder, ends, = computing
    @redis.config(:resetstat)
    others = Array.new(10) { ask(@locks, &nobody_computes) }
    joined(11)
    ends << RESULT
    values = [holder, *others].map(&:value)
    assert_equal [RESULT] * 11, values
    assert_equal 11, values.map(&:object_id).uniq.size, "a caller that changes its value changes no other's"
    assert_equal 0, calls("lock.acquire")
    assert_equal "computed", ask.value, "a later caller computes again"
    assert_equal 0, @locks.census["flights"]
  end

  # Runs the block before the manager sends this command for the first time.
  def before(name, &block)
    @locks.engine.client.define_singleton_method(:call) do |words, &sending|
      now = block if words[0] == name
      block = nil if now
      now&.call
      super(words, &sending)
    end
  end

  def test_a_caller_that_comes_once_the_block_has_returned_begins_a_new_attempt
    later = nil
    before("lock.release") do
      later = ask(@locks, &nobody_computes)
      queued(1)
    end
    assert_equal "first", @locks.single_flight("page", lease: 30) { "first" }
    assert_equal "first", later.value, "its attempt was in the queue before the release"
  end

  def test_a_caller_that_is_interrupted_during_the_release_has_passed_its_value_on
    others = nil
    interrupted = ask(@locks) do
      others = [ask(@locks, &nobody_computes), ask(@others, &nobody_computes)]
      joined(2)
      queued(1)
      before("lock.release") { Thread.current.raise(Cancelled) }
      RESULT
    end
    assert_raises(Cancelled) { interrupted.value }
    assert_equal [RESULT, RESULT], others.map(&:value)
    eventually("it is released in the background") { state("page") == "free" }
  end

  def test_a_caller_that_fails_lets_the_one_that_waited_longest_compute
    holder, ends, = computing
    second_ends = Thread::Queue.new
    second = ask(@locks) { second_ends.pop }
    joined(2)
    third = ask(@locks, &nobody_computes)
    joined(3)
    ends << -> { raise "enough" }
    assert_equal("enough", assert_raises(RuntimeError) { holder.value }.message)
    second_ends << RESULT
    assert_equal [RESULT, RESULT], [second.value, third.value]
    assert_equal "free", state("page")
  end

  def test_leaving_the_block_in_another_way_gives_no_result
    {
      "break" => -> { @locks.single_flight("page", lease: 30) { |_| break 1 } },
      "throw" => -> { catch(:done) { @locks.single_flight("page", lease: 30) { throw :done, 1 } } }
    }.each do |way, leave|
      assert_equal 1, leave.call, way
      assert_equal "free", state("page")
      assert_equal 0, @locks.census["flights"]
    end
  end

  def test_what_is_not_a_string_is_a_bad_argument_and_concerns_only_its_caller
    other = nil
    request = Serverlock::Request.new("page", lease: 30, wait: 60, takes_result: true)
    error = assert_raises(Serverlock::BadArgument) do # the types of the package's calls are checked
      Serverlock::SingleFlight.new(@locks, request).run do
        other = ask
        joined(2)
        42
      end
    end
    assert_match(/"page": block returned Integer, not a String/, error.message)
    assert_equal "computed", other.value
  end

  def test_the_arguments_are_checked
    [0, 0.0001, -1, Float::NAN].each do |wait|
      error = assert_raises(Serverlock::BadArgument, wait.inspect) { @locks.single_flight("page", lease: 30, wait:) { "" } }
      assert_match(/wait/, error.message)
    end
    assert_raises(Serverlock::BadArgument) { @locks.single_flight("page", lease: 0) { "" } }
  end

  def test_each_caller_has_its_own_wait
    theirs = @redis.call("lock.acquire", "page", "PX", 60_000)
    first = ask(@locks, wait: 0.3, &nobody_computes)
    queued(1)
    second = ask(@locks)
    third = ask(@locks, wait: 0.4, &nobody_computes)
    [first, third].each { |it| assert_raises(Serverlock::TimedOut) { it.value } }
    queued(1)
    @redis.call("lock.release", "page", theirs, "RESULT", RESULT)
    assert_equal RESULT, second.value
    assert_equal 0, @locks.census["flights"]
  end

  def test_other_errors_of_the_attempt_go_to_all_callers
    @redis.call("lock.acquire", "page", "PX", 60_000)
    id = 4711
    @locks.engine.define_singleton_method(:id) { id }
    callers = Array.new(5) { ask(@locks, &nobody_computes) }
    joined(5)
    queued(1)
    @redis.call("lock.cancel", "page", 4711)
    errors = callers.map { |it| assert_raises(Serverlock::Refused) { it.value } }
    assert_equal ["page"], errors.map(&:key).uniq
    assert_equal 5, errors.map(&:object_id).uniq.size
    id = 4712
    callers = Array.new(5) { ask(@locks, &nobody_computes) }
    joined(5)
    @locks.close
    callers.each { |it| assert_raises(Serverlock::Misuse) { it.value } }
  end

  def test_closing_the_manager_ends_those_that_wait_for_the_block
    holder, ends, = computing
    other = ask(@locks, &nobody_computes)
    joined(2)
    @locks.close
    assert_raises(Serverlock::Misuse) { other.value }
    ends << RESULT
    assert_equal RESULT, holder.value
    assert_equal "free", state("page")
    assert_raises(Serverlock::Misuse) { ask.value }
  end

  def test_asking_within_the_block_is_misuse
    value = @locks.single_flight("a", lease: 30) do
      assert_raises(Serverlock::Misuse) { @locks.single_flight("a", lease: 30, &nobody_computes) }
      assert_raises(Serverlock::Misuse) { @locks.lock("a", lease: 30, reentrant: true).acquire }
      @locks.single_flight("b", lease: 30) { "inner" }
    end
    assert_equal "inner", value
    @locks.lock("a", lease: 30) { assert_raises(Serverlock::Misuse) { @locks.single_flight("a", lease: 30, &nobody_computes) } }
    assert_equal 0, @locks.census["flights"]
  end

  def test_a_value_does_not_need_the_lock
    lost = Thread::Queue.new
    value = @locks.single_flight("page", lease: 0.2, on_lost: ->(held) { lost << held }) do |held|
      @redis.del("page")
      assert_same held, lost.pop
      RESULT
    end
    assert_equal RESULT, value
    assert_raises(Serverlock::Lost) do
      @locks.single_flight("page", lease: 0.2, interrupt: true) do
        @redis.del("page")
        sleep
      end
    end
    assert_raises(Serverlock::Lost) do
      @locks.single_flight("page", lease: 0.2) do |held|
        @redis.del("page")
        held.verify
        RESULT
      end
    end
  end

  def test_a_queued_attempt_keeps_asking_for_the_result
    theirs = @redis.call("lock.acquire", "page", "PX", 3_600_000)
    assert_raises(Serverlock::TimedOut) { @locks.lock("page", lease: 30, wait: 0.1).acquire } # its connection stays open
    engine = @locks.engine
    copies = Thread::Queue.new
    engine.server.define_singleton_method(:call) do |command, **options, &sending|
      copies << command.words if command.words[0] == "lock.acquire"
      raise Serverlock::ReplyError, "NOPERM this user has no permission" if command.words.include?("NOTIFY")

      super(command, **options, &sending)
    end
    waiting = ask(@locks, &nobody_computes)
    queued(1)
    engine.lone.give_way # as when others wait too
    eventually("it asks to be notified") { Array.new(copies.size) { copies.pop.tap { |it| copies << it } }.flatten.include?("NOTIFY") }
    queued(1)
    @redis.call("lock.release", "page", theirs, "RESULT", RESULT)
    assert_equal RESULT, waiting.value
    assert(Array.new(copies.size) { copies.pop }.all? { |it| it.include?("RESULT") })
  end

  def test_a_result_that_is_too_long_is_not_passed_on
    holder, ends, = computing
    other = ask(@others)
    queued(1)
    ends << ("x" * 65_537)
    assert_equal [65_537, "computed"], [holder.value.size, other.value]
    eventually("its hooks are called") { @hooks.size == 2 }
    assert_equal %i[granted released], hooks.sort
    assert_equal "free", state("page")
  end

  def test_the_caller_gets_its_value_if_the_server_refuses_the_release
    @redis.acl(:setuser, "app", "on", "nopass", "~*", "&*", "+@all", "-lock.release")
    locks = Serverlock::Locks.new(TestServer.redis(username: "app", password: "x"), logger: Logger.new(IO::NULL))
    assert_equal RESULT, locks.single_flight("page", lease: 30) { RESULT }
    assert_equal "held", state("page")
  ensure
    locks&.close
  end

  def test_a_forked_child_shares_nothing_with_its_parent
    holder, ends, = computing
    child = fork do
      Process.exit!(@locks.single_flight("mine", lease: 30) { "child" } == "child" && @locks.census["flights"].zero? ? 0 : 1)
    end
    assert_predicate Process.wait2(child)[1], :success?
    ends << RESULT
    assert_equal RESULT, holder.value
  end

  def interrupt(thread, means)
    case means
    when :raise then thread.raise(Cancelled)
    when :kill then thread.kill
    end
  end

  # A caller that is interrupted after a random time. Its value, nil if it was cancelled.
  def tossed(locks, key, means)
    value = nil
    play = proc { value = locks.single_flight(key, lease: 600, wait: 500) { rand < 0.3 ? sleep(0.002) && RESULT : RESULT } }
    after = [0.012 * (rand**3), 0.00001].max
    thread = Thread.new do
      means == :timeout ? Timeout.timeout(after, Cancelled, &play) : play.call
    rescue Cancelled
      nil
    end
    thread.report_on_exception = false
    thread.join(after)
    interrupt(thread, means)
    thread.join(60) or flunk "it hangs: #{thread.backtrace.join("\n")}"
    value
  rescue Cancelled
    value
  end

  def storm(locks, redis, means)
    failed = Thread::Queue.new
    Array.new(12) do
      Thread.new do
        15.times { [nil, RESULT].include?(tossed(locks, %w[a b].sample, means)) or failed << "a wrong value" }
      rescue StandardError => e
        failed << e.full_message
      end
    end.each(&:join)
    assert_empty Array.new(failed.size) { failed.pop }
    eventually("nothing is left: #{locks.census}") { locks.census.values.all?(&:zero?) }
    %w[a b].each do |key|
      eventually("#{key} is free") { yield redis, key }
      assert_equal(RESULT, locks.single_flight(key, lease: 600, wait: 60) { RESULT })
    end
  end

  def test_a_storm_of_interrupted_callers_leaves_nothing
    pool = ConnectionPool.new(size: 5) { TestServer.redis }
    [TestServer.redis, pool].each do |client|
      locks = Serverlock::Locks.new(client, logger: Logger.new(IO::NULL))
      %i[raise kill timeout].each do |means|
        storm(locks, @redis, means) { |_, key| state(key) == "free" && info(key)["waiters"].zero? }
      end
    ensure
      locks.close
    end
  end

  def test_a_storm_without_the_module_leaves_nothing
    TestServer.without_module do |redis|
      locks = Serverlock::Locks.new(redis, logger: Logger.new(IO::NULL))
      %i[raise kill timeout].each do |means|
        storm(locks, Redis.new(port: redis.connection[:port]), means) { |bare, key| bare.exists(key, "#{key}:queue:{#{key}}").zero? }
      end
    ensure
      locks&.close
    end
  end
end

# Without the module, a holder stores its result, and those that wait get it with the lock.
class StoredResultTest < Minitest::Test
  RESULT = SingleFlightTest::RESULT

  # Yields a connection, and two managers.
  def without_module(**options)
    TestServer.without_module do |redis|
      managers = Array.new(2) { Serverlock::Locks.new(Redis.new(port: redis.connection[:port], **options), warn_without_module: false) }
      yield redis, *managers
    ensure
      managers&.each(&:close)
    end
  end

  # What another manager's caller gets if the holder's block returns the value, or raises it.
  def passed_on(redis, one, two, key, value)
    waiting = nil
    asked = false
    two.engine.client.define_singleton_method(:call) do |words, &sending|
      reply = super(words, &sending)
      asked = true if words[0] == "get"
      reply
    end
    begin
      one.single_flight(key, lease: 60) do
        waiting = Thread.new { two.single_flight(key, lease: 60) { "computed" } }
        Waiting.until("it waits for #{key}") { asked && redis.zcard("#{key}:queue:{#{key}}").positive? }
        value.is_a?(Exception) ? raise(value) : value
      end
    rescue RuntimeError
      nil
    end
    waiting.value
  end

  def test_a_waiter_gets_the_result_that_was_stored_while_it_waited
    without_module do |redis, one, two|
      granted = Thread::Queue.new
      two.instance_variable_get(:@hooks)[:on_granted] = ->(_) { granted << true }
      assert_equal RESULT, passed_on(redis, one, two, "page", RESULT)
      token, value = redis.get("page:result:{page}").b.split(" ", 2)
      assert_match(/\A\d{16}\z/, token)
      assert_equal RESULT, value
      assert_includes 30_000..60_000, redis.pttl("page:result:{page}")
      assert_equal 0, redis.exists("page", "page:queue:{page}")
      assert_equal "computed", passed_on(redis, one, two, "page", RuntimeError.new("enough")), "an old result is not taken"
      assert_equal "computed", passed_on(redis, one, two, "page", "x" * 65_537)
      Waiting.until("only they computed") { granted.size == 2 }
    end
  end

  def test_a_free_lock_needs_no_get
    without_module do |redis, one|
      words = []
      one.engine.client.define_singleton_method(:call) do |command, &sending|
        words << command[0]
        super(command, &sending)
      end
      one.single_flight("page", lease: 60) { "42" }
      assert_equal %w[lock.acquire evalsha eval set evalsha], words - %w[info]
      assert_match(/\A\d{16} 42\z/, redis.get("page:result:{page}"))
      words.clear
      one.single_flight("a}", lease: 60) { "42" }
      assert_equal %w[evalsha evalsha], words, "the name has no key for results"
    end
  end
end
