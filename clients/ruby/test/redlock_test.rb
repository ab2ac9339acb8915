# frozen_string_literal: true

require_relative "support"
require "serverlock/redlock"

# The documented behaviour of the gem redlock, told again.
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

  def test_a_block_gets_the_info_and_unlocks_and_its_value_is_returned
    value = @redlock.lock("r", 3000) do |info|
      assert info
      assert @redlock.locked?("r")
      :value
    end
    assert_equal :value, value
    refute @redlock.locked?("r")
    assert_raises(RuntimeError) { @redlock.lock("r", 3000) { raise "broken" } }
    refute @redlock.locked?("r")
  end

  def test_a_block_gets_false_where_the_lock_is_refused
    @redlock.lock("r", 3000)
    assert_equal(:no, @redlock.lock("r", 3000) { |info| info ? :yes : :no })
  end

  def test_lock_bang_raises
    assert_equal(:value, @redlock.lock!("r", 3000) { :value })
    refute @redlock.locked?("r")
    @redlock.lock("r", 3000)
    error = assert_raises(Serverlock::Redlock::LockError) { @redlock.lock!("r", 3000) { flunk } }
    assert_includes error.message, "'r'"
  end

  def test_a_lock_is_extended_by_its_info
    info = @redlock.lock("r", 300)
    longer = @redlock.lock("r", 9000, extend: info)
    assert_equal info[:value], longer[:value]
    assert_operator @redlock.get_remaining_ttl_for_lock(info), :>, 5000
    @redlock.unlock(info)
    assert_equal false, @redlock.lock("r", 300, extend: info, extend_only_if_locked: true)
    assert @redlock.lock("r", 300, extend: info), "the gem locks again"
  end

  def test_the_time_that_is_left
    info = @redlock.lock("r", 3000)
    assert_includes 1..3000, @redlock.get_remaining_ttl_for_lock(info)
    assert_includes 1..3000, @redlock.get_remaining_ttl_for_resource("r")
    assert @redlock.valid_lock?(info)
    @redlock.unlock(info)
    assert_nil @redlock.get_remaining_ttl_for_lock(info)
    assert_nil @redlock.get_remaining_ttl_for_resource("r")
    refute @redlock.unlock(info)
  end

  def test_it_is_not_renewed_and_can_be_handed_on
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

  def test_several_servers_and_unknown_options_are_refused
    assert_raises(ArgumentError) { Serverlock::Redlock.new([TestServer.redis, TestServer.redis]) }
    assert_raises(ArgumentError) { Serverlock::Redlock.new(@locks, retries: 3) }
  end
end
