# frozen_string_literal: true

require_relative "support"

# When an attempt joins the script's queue. A release finds nobody subscribed, and passes over attempts that are in the
# queue already.
class JoiningTest < Minitest::Test
  QUEUE = "report:queue:{report}"

  def setup
    @subscribed = Thread::Queue.new
  end

  # Yields a connection, a hold of the lock, and another manager, whose subscription is not up before `@subscribed` has
  # an entry. Until then the block replaces it.
  def held(&instead)
    TestServer.without_module do |redis|
      managers = Array.new(2) { Serverlock::Locks.new(Redis.new(port: redis.connection[:port]), warn_without_module: false) }
      subscribed = @subscribed
      managers[1].engine.subscription.define_singleton_method(:read) do
        instead.call while subscribed.empty?
        super()
      end
      hold = managers[0].lock("report", lease: 3600).acquire
      play(redis, hold, managers[1])
    ensure
      managers&.each(&:close)
    end
  end

  def asked(redis)
    redis.info("commandstats").values_at("eval", "evalsha").compact.sum { |it| Integer(it["calls"]) }
  end

  def play(redis, hold, locks)
    before = asked(redis)
    waiting = Thread.new { locks.lock("report", lease: 30, wait: 600).acquire }
    waiting.report_on_exception = false
    Waiting.until("it asks again and again") { asked(redis) >= before + 3 }
    assert_equal 0, redis.zcard(QUEUE)
    @subscribed << true
    Waiting.until("it is in the queue") { redis.zcard(QUEUE) == 1 }
    assert hold.release
    assert waiting.value.release
    assert_equal 0, redis.exists("report", QUEUE)
  end

  def test_an_attempt_does_not_join_while_the_subscription_is_not_confirmed
    held { sleep 0.01 }
  end

  def test_an_attempt_does_not_join_while_the_subscription_fails
    held { raise Serverlock::ConnectionLost, "no reply in time" }
  end

  def test_the_first_attempts_of_a_crowd_do_not_join_either
    Serverlock::Client.class_eval { alias_method :was_crowded?, :crowded? }
    Serverlock::Client.class_eval { define_method(:crowded?) { true } }
    held { raise Serverlock::ConnectionLost, "no reply in time" }
  ensure
    Serverlock::Client.class_eval { alias_method :crowded?, :was_crowded? }
  end
end
