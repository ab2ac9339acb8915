# frozen_string_literal: true

require_relative "support"
require "minitest/mock"

# The estimate of the server's clock, and its margin, with a local clock that only the tests move.
class ServerClockTest < Minitest::Test
  # A client of a server whose clock is ahead of the local one. `takes`: seconds for each reply, or an error instead.
  class Bench
    attr_reader :asked, :timeout
    attr_accessor :at, :ahead, :takes, :infos, :is_cluster, :pause

    def initialize
      @at = 5000.0
      @ahead = 1_000_000.0
      @asked = 0
      @takes = []
      @infos = []
      @timeout = 5.0
    end

    def clock = Serverlock::Clock

    def cluster?
      @is_cluster
    end

    def time(_key)
      @asked += 1
      sleep(@pause) if @pause
      yield
      takes = @takes.shift || 0.0
      raise takes if takes.is_a?(Exception)

      @at += takes / 2
      micros = ((@at + @ahead) * 1_000_000).round
      @at += takes / 2
      micros.divmod(1_000_000).map(&:to_s)
    end

    def call(_words)
      info = @infos.shift
      info.is_a?(Exception) ? raise(info) : info
    end
  end

  VALID_FOR = Serverlock::ServerClock::VALID_FOR

  def setup
    @bench = Bench.new
    @clock = Serverlock::ServerClock.new(@bench)
  end

  def read(key = "job")
    Serverlock::Clock.stub(:now, -> { @bench.at }) { @clock.read(key) }
  end

  def margin
    Serverlock::Clock.stub(:now, -> { @bench.at }) { @clock.read_margin("job") }
  end

  def lost
    Serverlock::ConnectionLost.new("tested")
  end

  def test_the_offset_is_taken_at_the_midpoint_of_the_call
    @bench.takes = [0.4]
    found = read
    assert_in_delta 1_000_000.0, found.offset, 1e-5
    assert_in_delta 0.2, found.doubt, 1e-5
  end

  def test_replies_are_text_or_numbers
    [%w[1800000000 250000], [1_800_000_000, 250_000]].each do |reply|
      assert_in_delta 1_800_000_000.25 - 10.25, Serverlock::Estimate.of(reply, 10.0, 10.5).offset, 1e-5
    end
    [nil, "OK", ["1"], %w[x y], [nil, nil]].each do |reply|
      error = assert_raises(Serverlock::ReplyError) { Serverlock::Estimate.of(reply, 0.0, 0.0) }
      assert_includes error.message, "TIME"
    end
  end

  def test_it_is_asked_at_most_once_a_minute
    3.times { read }
    @bench.at += VALID_FOR - 0.001
    read("another")
    assert_equal 1, @bench.asked
    @bench.at += 0.002
    @bench.ahead += 3.0 # somebody has changed its clock
    assert_in_delta 1_000_003.0, read.offset, 1e-5
    assert_equal 2, @bench.asked
  end

  def test_the_server_is_asked_again_after_a_slow_reply
    @bench.takes = [0.51]
    found = read
    assert_same found, read
    assert_equal [0.0, 2], [found.doubt, @bench.asked]
  end

  def test_an_estimate_from_a_slow_reply_is_used_once
    @bench.takes = [0.6, 0.7]
    found = read
    refute_predicate found, :good?
    assert_in_delta 0.3, found.doubt, 1e-5
    2.times { read }
    assert_equal 3, @bench.asked
  end

  def test_a_lost_second_reply_does_not_matter
    @bench.takes = [0.6, lost]
    assert_in_delta 0.3, read.doubt, 1e-5
  end

  def test_each_server_of_a_cluster_has_its_own_clock
    @bench.is_cluster = true
    %w[a b a].each { |key| read(key) }
    assert_equal 2, @bench.asked
  end

  def test_the_server_is_asked_again_after_a_lost_reply
    @bench.takes = [lost]
    assert_in_delta 1_000_000.0, read.offset, 1e-5
    @bench.at += VALID_FOR + 1
    @bench.takes = [lost, lost]
    assert_raises(Serverlock::ConnectionLost) { read }
    @bench.takes = [Serverlock::ReplyError.new("NOPERM no")]
    assert_raises(Serverlock::ReplyError) { read }
    read
    assert_equal 6, @bench.asked
  end

  def test_many_threads_ask_once
    @bench.pause = 0.02
    Array.new(20) { Thread.new { @clock.read("job") } }.each(&:join)
    assert_equal 1, @bench.asked
  end

  def test_a_caller_does_not_wait_for_long_while_another_one_asks
    @bench.instance_variable_set(:@timeout, 0.05)
    @bench.pause = 10
    thread = Thread.new { @clock.read("job") }
    Waiting.until("it asks") { @bench.asked == 1 }
    assert_raises(Serverlock::ConnectionLost) { @clock.read("job") }
    thread.kill.join
    @bench.pause = nil
    @clock.read("job")
    assert_equal 2, @bench.asked
  end

  def test_the_margin_is_asked_for_at_most_once_a_minute
    info = { "lease-ms" => 5000, "free-in-ms" => 12_001 }
    @bench.infos = [info.to_a.flatten, Serverlock::ReplyError.new("NOPERM no"), lost, { "lease-ms" => 0 }]
    assert_equal [7.0, 7.0], [margin, margin]
    @bench.at += VALID_FOR
    assert_equal [7.0, 7.0], [margin, margin], "this user may not ask"
    @bench.at += VALID_FOR
    assert_equal [7.0, 1.0], [margin, margin], "a lost reply is asked for again"
    assert_empty @bench.infos
    assert_equal 0.0, Serverlock::ServerClock.margin_of("lease-ms" => 10, "free-in-ms" => 10)
  end
end
