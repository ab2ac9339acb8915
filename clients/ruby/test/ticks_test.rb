# frozen_string_literal: true

require_relative "support"

# Ticks at the edges of their windows, and the end of a kept lease. There is no clock: each time is an argument.
class TicksTest < Minitest::Test
  START = 1_799_971_200.0 # a tick of each of the periods below
  PERIODS = [10.0, 60.0, 3600.0, 86_400.0, 12.5].freeze
  Ticks = Serverlock::Ticks

  def test_a_time_belongs_to_the_nearest_tick
    PERIODS.each do |period|
      tick = (START / period).round
      assert_equal START, tick * period
      { -0.5 => 0, -0.499 => 0, 0 => 0, 0.4 => 0, -0.4 => 0, 0.499 => 0, 0.5 => 1, -0.501 => -1 }.each do |shift, meant|
        assert_equal tick + meant, Ticks.at(START + (shift * period), period), [period, shift].inspect
      end
    end
  end

  def test_halfway_belongs_to_the_later_tick_whether_it_is_odd_or_even
    [180_000_000, 180_000_001].each do |tick|
      assert_equal tick + 1, Ticks.at(Ticks.ends(tick, 10.0), 10.0)
      assert_equal tick, Ticks.at(Ticks.begins(tick, 10.0), 10.0)
      assert_equal tick, Ticks.at(Ticks.ends(tick, 10.0) - 1e-5, 10.0)
    end
  end

  def test_windows_follow_each_other
    PERIODS.each do |period|
      assert_equal Ticks.begins(8, period), Ticks.ends(7, period)
      assert_equal period, Ticks.ends(7, period) - Ticks.begins(7, period)
    end
  end

  def test_the_ordinary_end_of_the_last_tick_is_not_a_crash
    PERIODS.each do |period|
      tick = (START / period).round
      begins = START - (period / 2)
      { -period => false, 0 => false, 0.6 => false, 1 => false, 1.01 => true, period / 2 => true }.each do |after, crashed|
        assert_equal crashed, Ticks.recovery?(begins + after, tick, period), [period, after].inspect
      end
    end
  end

  def test_the_default_lease_leaves_time_to_run_the_tick_again
    assert_equal([2.5, 10.0, 10.0], [10.0, 40.0, 3600.0].map { |period| Ticks.default_lease(period) })
  end

  def test_the_lease_ends_a_margin_before_halfway_on_the_local_clock
    # Never earlier, and later by less than the slack.
    { 0.0 => 0.0, 0.1 => 0.1, 0.25 => 0.25, 5.0 => 0.25 }.each do |doubt, later|
      run = Serverlock::Run.new(180_000_000, 10.0, false, Serverlock::Estimate.new(1_799_999_000.0, doubt, 0.0), 1.5, false)
      assert_in_delta 1000 + 5 - 1.5 + later, run.lease_ends, 1e-5
    end
  end
end
