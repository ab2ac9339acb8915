# frozen_string_literal: true

require_relative "support"
require "connection_pool"
require "serverlock/redlock"

# The cases from the gem's own tests (redlock 2, spec/client_spec.rb), except those about several servers and their
# majority, the gem's scripts and their loading, its random values, its clock, and its delays between retries.
class RedlockTest < LockTest
  QUICK = { retry_count: 1, retry_delay: 50, retry_jitter: 0 }.freeze

  def setup
    super
    @redlock = Serverlock::Redlock.new(@locks, QUICK)
  end

  def test_a_lock_is_a_hash_with_validity_resource_and_value
    info = @redlock.lock("r", 3000)
    assert_equal %i[validity resource value], info.keys
    assert_equal "r", info[:resource]
    assert_includes 2000..3000, info[:validity]
    assert @redlock.unlock(info)
    refute @redlock.locked?("r")
  end

  def test_a_second_lock_is_false
    first = @redlock.lock("r", 3000)
    assert_equal false, @redlock.lock("r", 3000)
    @redlock.unlock(first)
    assert @redlock.lock("r", 3000)
  end

  def test_a_block_gets_the_info_and_unlocks_and_true_is_returned
    value = @redlock.lock("r", 3000) do |info|
      assert_equal "r", info[:resource]
      assert @redlock.locked?("r")
      :value
    end
    assert_equal true, value
    refute @redlock.locked?("r")
    assert_raises(RuntimeError) { @redlock.lock("r", 3000) { raise "broken" } }
    refute @redlock.locked?("r")
  end

  def test_a_block_gets_false_where_the_lock_is_refused
    @redlock.lock("r", 3000)
    seen = nil
    assert_equal(false, @redlock.lock("r", 3000) { |info| seen = info })
    assert_equal false, seen
  end

  def test_lock_bang_raises
    assert_equal(:value, @redlock.lock!("r", 3000) { :value })
    refute @redlock.locked?("r")
    @redlock.lock("r", 3000)
    error = assert_raises(Serverlock::Redlock::LockError) { @redlock.lock!("r", 3000) { flunk } }
    assert_includes error.message, "'r'"
  end

  def test_a_lock_is_extended_with_its_info
    info = @redlock.lock("r", 300)
    longer = @redlock.lock("r", 9000, extend: info)
    assert_equal info[:value], longer[:value]
    assert_operator @redlock.get_remaining_ttl_for_lock(info), :>, 5000
    @redlock.unlock(info)
    assert_equal false, @redlock.lock("r", 300, extend: info, extend_only_if_locked: true)
    assert @redlock.lock("r", 300, extend: info), "the gem locks again"
  end

  def test_an_extension_sets_the_time_and_does_not_add_to_it
    info = @redlock.lock("r", 20_000)
    assert @redlock.lock("r", 20_000, extend: info, extend_only_if_locked: true)
    assert_includes 10_000..20_000, @redlock.get_remaining_ttl_for_lock(info)
    assert_equal(:done, @redlock.lock!("r", 20_000, extend: info) { :done })
  end

  def test_an_unknown_info_is_extended_only_as_a_new_lock
    assert_equal false, @redlock.lock("r", 3000, extend: { value: "hello world" }, extend_only_if_locked: true)
    info = @redlock.lock("r", 3000, extend: { value: "hello world" })
    assert @redlock.valid_lock?(info)
    assert_equal false, @redlock.lock("r", 3000, extend: { value: "1" }), "the lock is somebody else's"
    refute_nil @redlock.lock("s", 3000, extend: nil)[:value]
  end

  def test_the_old_names_of_an_option_cause_a_warning
    info = @redlock.lock("r", 20_000)
    _, warning = capture_io { assert @redlock.lock("r", 20_000, extend: info, extend_life: true) }
    assert_includes warning, "DEPRECATION WARNING"
  end

  def test_a_server_may_be_a_url_a_client_or_a_pool
    url = "redis://localhost:#{TestServer.port}"
    [[url], url, [TestServer.redis], ConnectionPool.new(size: 2) { TestServer.redis }].each do |servers|
      assert_equal(:done, Serverlock::Redlock.new(servers, redis_timeout: 1).lock!("r", 3000) { :done })
    end
  end

  def test_without_a_server_lock_raises_and_other_calls_do_not
    gone = Serverlock::Redlock.new(["redis://localhost:1"], QUICK)
    error = assert_raises(Serverlock::Redlock::LockAcquisitionError) { gone.lock("r", 3000) }
    assert_equal [Serverlock::NoServer], error.errors.map(&:class)
    info = { resource: "r", value: "1", validity: 1 }
    assert_equal [nil, nil, false], [gone.get_remaining_ttl_for_lock(info), gone.get_remaining_ttl_for_resource("r"), gone.unlock(info)]
  end

  def test_the_remaining_time_is_reported
    info = @redlock.lock("r", 3000)
    assert_includes 1..3000, @redlock.get_remaining_ttl_for_lock(info)
    assert_includes 1..3000, @redlock.get_remaining_ttl_for_resource("r")
    assert @redlock.valid_lock?(info)
    @redlock.unlock(info)
    assert_nil @redlock.get_remaining_ttl_for_lock(info)
    assert_nil @redlock.get_remaining_ttl_for_resource("r")
    refute @redlock.unlock(info)
  end

  def test_a_lock_is_not_renewed_and_can_be_handed_on
    info = @redlock.lock("r", 600)
    other = Serverlock::Redlock.new(TestServer.redis)
    eventually("it has expired") { other.get_remaining_ttl_for_lock(info).nil? }
  end

  def test_a_retry_loop_is_a_wait
    first = @redlock.lock("r", 30_000)
    patient = Serverlock::Redlock.new([TestServer.redis], retry_count: 100, retry_delay: ->(_) { 500 }, retry_jitter: 0)
    second = Thread.new { patient.lock("r", 30_000) }
    eventually("it waits") { info("r")["waiters"] == 1 }
    @redlock.unlock(first)
    assert second.value
  end

  def test_a_delay_callable_gets_the_number_of_the_try
    numbers = []
    redlock = Serverlock::Redlock.new(@locks, retry_count: 3, retry_delay: ->(number) { numbers << number and 1 })
    redlock.lock("r", 3000)
    assert_equal [1, 2, 3], numbers
  end

  def test_without_the_module_the_same_calls_work
    TestServer.without_module do |redis|
      redlock = Serverlock::Redlock.new(Serverlock::Locks.new(redis, warn_without_module: false), QUICK)
      assert_nil redlock.get_remaining_ttl_for_resource("r")
      info = redlock.lock("r", 3000)
      assert_includes 1..3000, redlock.get_remaining_ttl_for_resource("r")
      assert redlock.valid_lock?(info)
      redlock.unlock(info)
      refute redlock.locked?("r")
    end
  end

  def test_several_servers_and_unknown_options_are_refused
    assert_raises(ArgumentError) { Serverlock::Redlock.new([TestServer.redis, TestServer.redis]) }
    assert_raises(ArgumentError) { Serverlock::Redlock.new(@locks, retries: 3) }
  end
end
