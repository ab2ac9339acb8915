# frozen_string_literal: true

require_relative "support"

# The forms in which commands are sent, without a server.
class ServerTest < Minitest::Test
  # Replaces the application's client: has the module or not, and refuses some queues.
  class Bench
    attr_reader :calls
    attr_accessor :module, :refusal

    def initialize
      @calls = []
    end

    def clock = Serverlock::Clock

    def call(words)
      @calls << words
      yield if block_given?
      case words[0]
      when "info" then "maxmemory_policy:noeviction\r\n"
      when "evalsha" then @refusal && words[2] == 2 ? raise(Serverlock::ReplyError, @refusal) : 12
      else @module ? 11 : raise(Serverlock::ReplyError, "ERR unknown command '#{words[0]}'")
      end
    end
  end

  def setup
    @bench = Bench.new
    @found = 0
    @server = Serverlock::Server.new(@bench, nil, portable: true, warn: false) { @found += 1 }
    @request = Serverlock::Request.new("report", lease: 30)
  end

  # How many keys each of the block's script calls has.
  def keys_of
    @bench.calls.clear
    yield
    @bench.calls.select { |words| words[0] == "evalsha" }.map { |words| words[2] }
  end

  def test_only_an_acquire_probes_for_the_module_and_finding_it_is_reported_once
    assert_equal 12, @server.call(@request.acquire(7))
    @bench.module = true
    assert_equal 12, @server.call(@request.release(12)), "a release does not probe for the module"
    @server.instance_variable_set(:@asked_at, Serverlock::Clock.now - 6)
    words = @server.translate(copy = @request.acquire(7, wait: 900, channel: "c"))
    assert_equal "lock.acquire", words[0]
    assert_equal "evalsha", @server.translate(copy)[0], "only one copy probes"
    assert_equal "WAITING", @server.settle("WAITING", words, copy, @bench, 1)
    assert_equal [1, false], [@found, @server.module_missing?]
    assert_equal 11, @server.call(@request.acquire(7))
    assert_equal 1, @found
  end

  def test_a_queue_that_the_user_may_not_touch_is_left_out_for_a_while
    @bench.refusal = "NOPERM No permissions to access a key"
    assert_equal([2, 1], keys_of { @server.call(@request.acquire(7, wait: 900, channel: "c")) })
    refute_includes @bench.calls.last, "WAIT"
    assert_equal([1], keys_of { @server.call(@request.release(12)) })
    shared = Serverlock::Request.new("report", lease: 30, shared: true)
    assert_raises(Serverlock::ReplyError) { @server.call(shared.acquire(7)) }
  end

  def test_a_queue_that_is_moving_is_left_out_once
    @bench.refusal = "TRYAGAIN Multiple keys request during rehashing of slot"
    assert_equal([2, 1], keys_of { @server.call(@request.acquire(7)) })
    assert_equal([2, 1], keys_of { @server.call(@request.extend(12, 9)) })
    assert_raises(Serverlock::ReplyError) { @server.call(@request.cancel(7, "c")) }
    refute_predicate @server, :alone?
  end
end

# What is cancelled in the background, and when.
class DebtsTest < Minitest::Test
  class Bench
    attr_reader :cancelled

    def initialize(missing)
      @missing = missing
      @cancelled = []
    end

    def clock = Serverlock::Clock
    def client = self
    def calls = self
    def close = nil
    def server = self
    def subscription = self
    def channel = "c"
    def alone? = false
    def patience = 1.0
    def module_missing? = @missing
    # As in the engine: a thread inherits its creator's mask, and could not be killed.
    def thread(_name, &) = Thread.new { Thread.handle_interrupt(Object => :immediate, &) }
    def call(_command, _patience = nil, **_options) = @cancelled << Serverlock::Clock.now
  end

  def cancelled(missing, unanswered)
    bench = Bench.new(missing)
    Serverlock::Debts.new(bench).cancel(Serverlock::Request.new("report", lease: 30), 7, unanswered:)
    sleep(2.5)
    Waiting.until("it is cancelled", 10) { bench.cancelled.size > (missing && unanswered ? 1 : 0) }
    bench.cancelled
  end

  def test_a_copy_that_may_still_run_is_cancelled_once_more_where_nothing_blocks_its_id
    threads = [[true, true, 2], [true, false, 1], [false, true, 1]].map do |missing, unanswered, times|
      Thread.new { [times, cancelled(missing, unanswered)] }
    end
    threads.map(&:value).each do |times, at|
      assert_equal times, at.size
      assert_operator at.last - at.first, :>=, 2 if times == 2
    end
  end
end
