# frozen_string_literal: true

require_relative "support"

# The copies of a waiting attempt, without a server: sent, answered and cancelled in every order.
class WaitsTest < Minitest::Test
  # Replaces an engine. `copies` are on their way; `cancelled` has the IDs of cancelled attempts.
  class Bench
    attr_reader :copies, :cancelled, :scheduled, :random

    def initialize
      @copies = []
      @cancelled = []
      @scheduled = []
      @random = Random.new(7)
    end

    def clock = Serverlock::Clock
    def renewals = self
    def debts = self
    def timer = self
    def push(copies) = @copies.concat(copies)
    def cancel(_request, id, unanswered: false) = @cancelled << (unanswered ? [id, :again] : id)
    def schedule(item) = @scheduled << item
    def patience = 5.0
    def closed? = false

    # Answers the copies on their way with the reply.
    def answer(reply)
      copies = @copies.reject(&:gone?)
      @copies.clear
      copies.each(&:renewal)
      yield if block_given?
      copies.each { |copy| copy.renewed(reply) }
    end
  end

  def setup
    @bench = Bench.new
    @subscription = Serverlock::Subscription.new(@bench)
    @wait = @subscription.register(Serverlock::Request.new("report", lease: 30), 7, Serverlock::Clock.now + 60) { ["call"] }
    @subscription.alone(@wait) { "WAITING" }
  end

  def hear(message)
    @subscription.send(:hear, message)
  end

  def test_a_grant_is_claimed_by_one_copy
    hear("granted 7 report")
    hear("granted 7 report")
    assert_equal 1, @bench.copies.size
    @bench.answer(12)
    assert_equal 12, @wait.outcome.value
    assert_empty @bench.cancelled
  end

  def test_a_message_after_the_reply_does_not_lose_the_lock
    @subscription.send_again(@wait)
    @bench.answer(12)
    hear("granted 7 report")
    @bench.answer(12) { @subscription.forget(7) }
    assert_equal 12, @wait.outcome.value
    assert_empty @bench.cancelled, "the lock is held"
  end

  def test_a_message_during_the_first_copy_claims_only_if_that_copy_is_waiting
    wait = @subscription.register(Serverlock::Request.new("report", lease: 30), 8, Serverlock::Clock.now + 60) { ["call"] }
    @subscription.alone(wait) { hear("granted 8 report") || 12 }
    assert_empty @bench.copies
    wait = @subscription.register(Serverlock::Request.new("report", lease: 30), 9, Serverlock::Clock.now + 60) { ["call"] }
    @subscription.alone(wait) { hear("granted 9 report") || "WAITING" }
    assert_equal 1, @bench.copies.size
  end

  def test_a_grant_to_an_attempt_that_was_given_up_is_cancelled
    @subscription.send_again(@wait)
    @bench.answer(12) { @subscription.forget(7) }
    assert_equal [7], @bench.cancelled
  end

  def test_an_attempt_that_was_given_up_is_cancelled_twice_if_a_copy_got_no_reply
    @subscription.send_again(@wait)
    @bench.answer(Serverlock::ConnectionLost.new("closed")) { @subscription.forget(7) }
    assert_equal [[7, :again]], @bench.cancelled
  end

  def test_the_script_says_when_to_ask_again
    @subscription.instance_variable_set(:@state, :up)
    { 5000 => 4.9..5.0, 1234 => 1.234..1.235, 0 => 0.0..0.001 }.each do |ms, seconds|
      @bench.scheduled.clear
      @subscription.send_again(@wait)
      now = nil
      @bench.answer(["WAITING", ms]) { now = Serverlock::Clock.now }
      assert_nil @wait.instance_variable_get(:@outcome)
      assert_operator @wait.resend_at - now, :>=, seconds.begin
      assert_operator @wait.resend_at - now, :<=, seconds.end + 0.1
      assert_equal ms < 5000 ? 2 : 1, @bench.scheduled.size, "the timer would fire too late"
    end
  end

  def test_while_the_subscription_is_down_the_script_is_asked_every_second
    { 5000 => 0.9..1.0, 300 => 0.3..0.301 }.each do |ms, seconds|
      @subscription.send_again(@wait)
      now = nil
      @bench.answer(["WAITING", ms]) { now = Serverlock::Clock.now }
      assert_operator @wait.resend_at - now, :>=, seconds.begin
      assert_operator @wait.resend_at - now, :<=, seconds.end + 0.1
    end
  end

  def test_details_are_a_grant
    @subscription.send_again(@wait)
    @bench.answer([12, nil, nil, nil])
    assert_equal [12, nil, nil, nil], @wait.outcome.value
  end

  def test_all_attempts_join_a_new_queue_within_a_second
    @wait.resend_at = Serverlock::Clock.now + 60
    @subscription.send_all_again
    assert_operator @wait.resend_at, :<=, Serverlock::Clock.now + 1
  end

  def test_a_reply_outlasts_later_messages
    @subscription.send_again(@wait)
    @bench.answer(12)
    hear("timeout 7 report")
    assert_equal 12, @wait.outcome.value
  end

  def test_without_news_a_copy_keeps_the_place
    now = Serverlock::Clock.now
    assert_operator @wait.look(now, due = []), :<=, @wait.ends
    assert_empty due
    at = @wait.look(now + 6, due)
    assert_equal 1, due.size
    assert_operator at, :>, now + 6
    @wait.look(now + 20, due)
    assert_equal 1, due.size, "one copy is on its way"
    assert_equal Float::INFINITY, @wait.look(now + 61, due)
    assert_equal :timeout, @wait.outcome
  end
end

# When the timer looks at its items.
class TimerTest < Minitest::Test
  # Is due at these times, one after the other.
  class Item
    attr_reader :looks
    attr_accessor :times, :looked_at

    def initialize(*times)
      @times = times
      @looks = Thread::Queue.new
    end

    def due_at
      @times.first || Float::INFINITY
    end

    def look(now, _due)
      @looks << now
      @times.shift || Float::INFINITY
    end
  end

  class Bench
    def clock = Serverlock::Clock
    def renewals = self
    def subscription = self
    def push(_due) = nil
    def look(_now) = nil
    def closed? = false
    # As in the engine: a thread inherits its creator's mask, and could not be killed.
    def thread(_name, &) = Thread.new { Thread.handle_interrupt(Object => :immediate, &) }
  end

  def setup
    @timer = Serverlock::Timer.new(Bench.new)
    @now = Serverlock::Clock.now
  end

  def look(item)
    Waiting.until("it is checked") { item.looks.pop(true) unless item.looks.empty? }
  end

  def test_it_looks_at_a_new_item_and_again_when_that_is_due
    @timer.schedule(item = Item.new(@now + 0.2))
    look(item)
    assert_operator look(item), :>=, @now + 0.2
  end

  def test_an_earlier_time_replaces_a_later_one
    @timer.schedule(item = Item.new(@now + 600))
    look(item)
    item.times = [@now + 0.1]
    @timer.schedule(item)
    2.times { look(item) }
    assert_empty item.times
  end
end
