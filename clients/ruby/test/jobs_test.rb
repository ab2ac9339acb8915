# frozen_string_literal: true

require_relative "support"

ENV["REDIS_URL"] = "redis://127.0.0.1:#{TestServer.port}"
require_relative "sidekiq_app"
require "serverlock/active_job"

# Real Sidekiq processes, which are killed with kill -9.
class SidekiqTest < LockTest
  def setup
    super
    Sidekiq.logger.level = Logger::ERROR
    @pids = []
  end

  def teardown
    @pids.dup.each { |pid| finish(pid) }
    super
  end

  def sidekiq
    log = File.join(Dir.tmpdir, "serverlock-sidekiq-#{Process.pid}.log")
    pid = spawn("sidekiq", "-r", File.expand_path("sidekiq_app.rb", __dir__), "-c", "4", "-t", "1",
                out: log, err: log)
    @pids << pid
    pid
  end

  def finish(pid)
    @pids.delete(pid)
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  def began(name, count)
    eventually("#{count} began") { @redis.llen("began:#{name}") >= count }
    @redis.lrange("began:#{name}", 0, -1)
  end

  def test_a_worker_that_is_killed_leaves_no_lock_behind
    first = sidekiq
    OneAtATime.perform_async("a")
    assert_equal first.to_s, began("a", 1).last
    finish(first)
    @redis.del("running:a")
    OneAtATime.perform_async("a")
    assert_equal "held", state(Serverlock::Sidekiq.key("class" => "OneAtATime", "args" => ["a"]))
    second = sidekiq
    assert_equal second.to_s, began("a", 2).last
    @redis.set("end:a", 1)
    eventually("the job ended") { @redis.llen("ended:a") == 1 }
    assert_equal "1", @redis.get("most:a")
  end

  def test_jobs_with_the_same_arguments_run_one_at_a_time_and_all_run
    2.times { sidekiq }
    3.times { OneAtATime.perform_async("b") }
    OneAtATime.perform_async("other")
    began("b", 1)
    began("other", 1)
    @redis.set("end:other", 1)
    @redis.set("end:b", 1)
    eventually("all ran") { @redis.llen("ended:b") == 3 }
    assert_equal "1", @redis.get("most:b")
  end

  def test_a_second_job_is_not_queued_until_the_first_is_executed
    assert OnceUntilDone.perform_async("c")
    assert_nil OnceUntilDone.perform_async("c")
    sidekiq
    began("c", 1)
    assert_nil OnceUntilDone.perform_async("c")
    @redis.set("end:c", 1)
    eventually("the job can be queued again") { OnceUntilDone.perform_async("c") }
  end

  def test_a_unique_job_that_is_killed_can_be_queued_again_soon
    assert OnceUntilDone.perform_async("d")
    pid = sidekiq
    began("d", 1)
    key = Serverlock::Sidekiq.key("class" => "OnceUntilDone", "args" => ["d"])
    assert_operator info(key)["lease-ms"], :<, 10_000, "the lease is the process's now"
    finish(pid)
    eventually("the job can be queued again") { OnceUntilDone.perform_async("d") }
  end
end

# One job at a time for the same arguments.
class ActiveJobTest < LockTest
  # A job that reports its runs.
  class Report < ActiveJob::Base
    include Serverlock::ActiveJob
    serverlock lease: 30
    RAN = Thread::Queue.new

    def perform(name, &)
      RAN << name
      Report.perform_now(name) if name == "nested"
    end
  end

  # A job that is queued again.
  class Patient < Report
    serverlock lease: 30, conflict: :queue, again_in: 7
  end

  def setup
    super
    Serverlock::ActiveJob.locks = @locks
    ActiveJob::Base.logger = nil
    ActiveJob::Base.queue_adapter = :test
    Report::RAN.clear
  end

  def theirs(job, name)
    key = Serverlock::Jobs.key(job.name, ActiveJob::Arguments.serialize([name]))
    @redis.call("lock.acquire", key, "PX", 30_000)
  end

  def test_a_job_runs_under_its_lock
    Report.perform_now("a")
    Report.perform_now("a")
    assert_equal 2, Report::RAN.size
  end

  def test_a_second_job_with_the_same_arguments_is_refused
    theirs(Report, "a")
    Report.perform_now("a")
    assert_empty Report::RAN
    Report.perform_now("b")
    assert_equal "b", Report::RAN.pop
    assert_empty ActiveJob::Base.queue_adapter.enqueued_jobs
  end

  def test_a_refused_job_can_be_queued_again
    theirs(Patient, "a")
    Patient.perform_now("a")
    assert_empty Report::RAN
    assert_equal 1, ActiveJob::Base.queue_adapter.enqueued_jobs.size
  end

  def test_a_wrong_option_is_an_error_at_once
    assert_raises(ArgumentError) { Class.new(Report) { serverlock lease: 0 } }
    assert_raises(ArgumentError) { Class.new(Report) { serverlock conflict: :maybe } }
  end
end
