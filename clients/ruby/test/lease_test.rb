# frozen_string_literal: true

require_relative "support"

# How long a hold may believe that it has its lock. There is no clock: each time is an argument.
class LeaseTest < Minitest::Test
  def test_a_lease_is_lost_a_tenth_before_its_end_and_due_after_a_third
    lease = Serverlock::Lease.new(100.0, 30.0)
    assert_in_delta 127.0, lease.lost_at
    assert_in_delta 110.0, lease.due_at
  end

  def test_a_confirmed_renewal_counts_from_when_it_was_sent
    lease = Serverlock::Lease.new(100.0, 30.0)
    lease.confirmed(lease.sent(110.0, 30.0))
    assert_in_delta 137.0, lease.lost_at
    assert_in_delta 120.0, lease.due_at
  end

  def test_a_shorter_lease_counts_from_the_moment_it_is_sent
    lease = Serverlock::Lease.new(100.0, 30.0)
    lease.sent(101.0, 5.0)
    assert_in_delta 105.5, lease.lost_at
  end

  def test_a_shorter_lease_counts_even_if_its_reply_was_lost
    lease = Serverlock::Lease.new(100.0, 30.0)
    lease.unanswered(lease.sent(101.0, 5.0))
    assert_in_delta 105.5, lease.lost_at
    longer = lease.sent(102.0, 30.0)
    lease.confirmed(longer)
    assert_in_delta 106.5, lease.lost_at, 0.001, "the shorter one may have been carried out last"
    lease.confirmed(lease.sent(103.0, 30.0))
    assert_in_delta 130.0, lease.lost_at
  end

  def test_once_one_of_several_extensions_is_confirmed_the_shortest_lease_applies
    lease = Serverlock::Lease.new(100.0, 30.0)
    short = lease.sent(101.0, 10.0)
    long = lease.sent(102.0, 60.0)
    lease.confirmed(long)
    assert_in_delta 110.0, lease.lost_at
    lease.confirmed(short)
    assert_in_delta 110.0, lease.lost_at
  end

  def test_a_refused_renewal_changes_nothing
    lease = Serverlock::Lease.new(100.0, 30.0)
    lease.refused(lease.sent(101.0, 5.0))
    assert_in_delta 127.0, lease.lost_at
  end

  def test_after_a_failure_a_renewal_is_due_a_twentieth_later
    lease = Serverlock::Lease.new(100.0, 30.0)
    lease.retry_at(110.0)
    assert_in_delta 111.5, lease.due_at
  end
end

# The clock of systems without CLOCK_BOOTTIME.
class ClockTest < Minitest::Test
  def setup
    @monotonic = 10.0
    @wall = 1000.0
    @clock = Serverlock::Clock::Larger.new(-> { @monotonic }, -> { @wall })
    @began = @clock.now
  end

  def test_a_suspend_counts
    @wall += 300
    assert_in_delta 300, @clock.now - @began
  end

  def test_a_wall_clock_that_is_set_back_lengthens_no_lease
    @monotonic += 5
    @wall -= 86_400
    assert_in_delta 5, @clock.now - @began
    @monotonic += 1
    @wall += 61
    assert_in_delta 66, @clock.now - @began
  end
end
