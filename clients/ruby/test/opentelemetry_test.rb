# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__), File.expand_path("opentelemetry", __dir__))
require "minitest/autorun"
require_relative "waiting"
require "serverlock/testing"
require "serverlock/opentelemetry"

# Spans and metrics, as a double of OpenTelemetry's interface gets them.
class OpenTelemetryTest < Minitest::Test
  def setup
    @server = Serverlock::Testing::Server.new
    @traces = OpenTelemetry::Trace::TracerProvider.new
    @meters = OpenTelemetry::Metrics::MeterProvider.new
    @locks = @server.locks(on_attempt: telemetry)
    @others = @server.locks
  end

  def teardown
    [@locks, @others].each(&:close)
  end

  def telemetry(**options)
    Serverlock::Telemetry.new(tracer_provider: @traces, meter_provider: @meters, **options)
  end

  def spans(name)
    @traces.finished.select { |span| span.name == name }
  end

  def points
    @meters.points.to_h { |(name, attributes), point| [[name, *attributes.values], point] }
  end

  def wait_of(outcome, **more)
    { "db.system.name" => "redis", "serverlock.key" => "report", "db.operation.name" => "LOCK.ACQUIRE",
      "serverlock.outcome" => outcome, **more }
  end

  def test_a_wait_and_a_hold_are_children_of_the_callers_span
    held = OpenTelemetry::Context.with_current(:request) { @locks.lock("report", lease: 30).acquire }
    assert_equal [1, 1], points[["serverlock.held {lock}"]]
    @server.clock.advance(7)
    held.release # outside of the caller's span
    wait, hold = %w[lock.wait lock.hold].map { |name| spans(name)[0] }
    assert_equal %i[client internal], [wait, hold].map(&:kind)
    assert_equal %i[request request], [wait, hold].map(&:parent)
    assert_equal wait_of("granted"), wait.attributes
    expected = { "serverlock.key" => "report", "serverlock.token" => held.token, "serverlock.outcome" => "released" }
    assert_equal expected, hold.attributes
    assert_equal [nil, nil], [wait, hold].map(&:status)
    assert_equal [["serverlock", Serverlock::VERSION]] * 3, [wait.scope, hold.scope, @meters.scope]
  end

  def test_metrics_count_waits_holds_and_held_locks
    held = @locks.lock("report", lease: 30).acquire
    assert_raises(Serverlock::Refused) { @locks.lock("report", lease: 30).acquire }
    @server.clock.advance(7)
    held.release
    assert_equal [2, 0], points.delete(["serverlock.held {lock}"]) # +1 and -1
    assert_equal [1, 7.0], points[["serverlock.hold.duration s", "released"]]
    names = ["serverlock.held {lock}", "serverlock.hold.duration s released", "serverlock.wait.duration s granted",
             "serverlock.wait.duration s refused"]
    assert_equal names, points.keys.map { |key| key.join(" ") }.sort
  end

  def test_a_refusal_a_time_out_and_an_interrupted_attempt_are_not_errors
    other = @others.lock("report", lease: 30).acquire
    assert_raises(Serverlock::Refused) { @locks.lock("report", lease: 30).acquire }
    waiter = Thread.new { assert_raises(Serverlock::TimedOut) { @locks.lock("report", lease: 30, wait: 2).acquire } }
    Waiting.until("it waits") { @server.waiting("report") == 1 }
    @server.clock.advance(3)
    waiter.join
    killed = Thread.new { @locks.lock("report", lease: 30, wait: 60).acquire }
    Waiting.until("it waits") { @server.waiting("report") == 1 }
    killed.kill.join
    other.release
    assert_equal(%w[refused timeout cancelled].map { |outcome| wait_of(outcome) }, spans("lock.wait").map(&:attributes))
    assert_equal [nil] * 3, spans("lock.wait").map(&:status)
    assert_empty spans("lock.hold")
  end

  def test_any_other_failure_is_an_error
    @server.refuse("report")
    assert_raises(Serverlock::Unavailable) { @locks.lock("report", lease: 30).acquire }
    wait, = spans("lock.wait")
    assert_equal wait_of("unavailable", "error.type" => "unavailable"), wait.attributes
    assert_equal :error, wait.status.code
  end

  def test_a_loss_is_an_error_and_an_event_once
    held = @locks.lock("report", lease: 30).acquire
    @server.lose(held)
    refute held.release
    hold, *more = spans("lock.hold")
    assert_empty more
    assert_equal %w[lost lost], hold.attributes.values_at("serverlock.outcome", "error.type")
    assert_equal ["lock.lost"], hold.events
    assert_equal :error, hold.status.code
    assert_match(/the test says so/, hold.status.description)
    assert_equal [1, 1], points[["serverlock.losses {loss}"]]
    assert_equal [2, 0], points[["serverlock.held {lock}"]]
    assert_equal [1, 0.0], points[["serverlock.hold.duration s", "lost"]]
  end

  def test_a_loss_that_only_the_release_notices_is_one_too
    held = @locks.lock("report", lease: 30).acquire
    @server.expire("report")
    refute held.release
    assert_equal "lost", spans("lock.hold")[0].attributes["serverlock.outcome"]
    assert_equal [1, 1], points[["serverlock.losses {loss}"]]
  end

  def test_a_hold_that_the_application_has_forgotten_expires
    @locks.lock("report", lease: 30).acquire
    Waiting.until("it is collected") do
      GC.start
      @server.clock.advance(1)
      spans("lock.hold").any?
    end
    assert_equal "expired", spans("lock.hold")[0].attributes["serverlock.outcome"]
    assert_equal [2, 0], points[["serverlock.held {lock}"]]
  end

  def test_several_keys_are_an_array_and_bytes_are_escaped
    @locks.all_of(%w[a b], lease: 30) { nil }
    assert_equal %w[a b], spans("lock.wait")[0].attributes["serverlock.keys"]
    assert_equal "LOCK.MACQUIRE", spans("lock.wait")[0].attributes["db.operation.name"]
    @locks.lock("\xFFa".b, lease: 30) { nil }
    assert_equal '\xffa', spans("lock.hold")[1].attributes["serverlock.key"]
  end

  def test_metrics_have_the_key_only_on_request
    @server.locks(on_attempt: telemetry(key_attribute: true)).lock("report", lease: 30) { nil }
    assert_equal [1, 0.0], points[["serverlock.hold.duration s", "released", "report"]]
    assert_equal [2, 0], points[["serverlock.held {lock}", "report"]]
  end

  def test_a_run_once_per_period_ends_its_span
    @locks.once("report", period: 3600) { nil }
    assert_equal(["released"], spans("lock.hold").map { |span| span.attributes["serverlock.outcome"] })
  end

  def test_the_result_of_another_holder_is_an_outcome
    computing = Queue.new
    leader = Thread.new do
      @others.single_flight("report", lease: 30) do
        computing << true
        Waiting.until("it waits") { @server.waiting("report") == 1 }
        "value"
      end
    end
    computing.pop
    assert_equal("value", @locks.single_flight("report", lease: 30) { flunk })
    leader.join
    assert_equal [wait_of("result")], spans("lock.wait").map(&:attributes)
    assert_empty spans("lock.hold")
  end

  def test_without_the_gem_for_metrics_there_are_spans
    OpenTelemetry.tracer_provider = @traces
    @server.locks(on_attempt: Serverlock::Telemetry.new).lock("report", lease: 30) { nil }
    assert_equal 1, spans("lock.hold").size
    assert_empty points
  end

  def test_an_error_in_a_watch_does_not_lose_a_lock
    log = StringIO.new
    broken = Class.new { define_method(:granted) { |*| raise "broken" } }.new
    locks = @server.locks(on_attempt: ->(_keys) { broken }, logger: Logger.new(log))
    assert locks.lock("report", lease: 30).acquire.release
    assert_match(/a watch failed.*broken/, log.string)
    locks.close
  end
end
