# frozen_string_literal: true

require_relative "support"
require "serverlock/redlock"
require "serverlock/sidekiq"

# rubocop:disable Style/EvalWithLocation, Style/DocumentDynamicEvalDefinition, Security/Eval

# Checks what the pages say about Ruby. They contain code, so this evaluates text.
class PagesTest < LockTest
  attr_reader :locks

  ROOT = File.expand_path("../../..", __dir__)

  def page(name)
    File.read(File.join(ROOT, name), encoding: "UTF-8")
  end

  # The changed line of a diff in docs/MIGRATING.md, without its plus.
  def shows(line)
    assert_includes page("docs/MIGRATING.md"), "\n+#{line}\n"
    line
  end

  def test_the_example_is_the_same_as_in_the_readme
    example = page("examples/ruby/report.rb").delete_prefix("# frozen_string_literal: true\n\n")
    assert_includes page("clients/ruby/README.md"), "```ruby\n#{example}```\n"
  end

  def test_the_readmes_block_runs_once_per_period
    code = page("clients/ruby/README.md")[/^```ruby\n(outcome = locks\.once.*?)^```$/m, 1]
    assert_output(/\Aworking, token \d+\nran\n\z/) { eval(code) }
    assert_output("elsewhere\n") { eval(code) }
  end

  def test_the_readmes_block_computes_one_result
    code = page("clients/ruby/README.md")[/^```ruby\n(page = redis\.get.*?)^```$/m, 1]
    redis = @redis
    assert_output(/\A42 pages, token \d+\n\z/) { eval(code, binding.tap { |it| it.local_variable_set(:redis, redis) }) }
    token = redis.get("page")
    assert_output("#{token}\n") { eval(code, binding) }
  end

  def test_the_readmes_test_of_an_application_runs
    code = page("clients/ruby/README.md")[%r{^```ruby\n(require "serverlock/testing".*?)^```$}m, 1]
    assert_output(/\Agot it, token \d+\nstill held: false\n\z/) { eval(code) }
  end

  def test_a_program_with_the_redlock_gem_changes_one_line
    line = shows('lock_manager = Serverlock::Redlock.new(["redis://localhost:6379"])')
    lock_manager = eval("#{line.sub('6379', TestServer.port.to_s)}; lock_manager")
    assert_equal(:done, lock_manager.lock!("report", 3000) { :done })
    assert_equal "free", state("report")
  end

  def test_a_program_with_redis_mutex_changes_one_line
    line = shows('locks.lock("RedisMutex:report", lease: 30, wait: 60, owner: nil) do')
    assert_equal "held", eval("#{line} state('RedisMutex:report') end")
  end

  def test_the_options_of_a_unique_job_are_known
    line = shows("  sidekiq_options serverlock: { unique: :until_executed, queued: 86_400 }")
    options = eval("{ #{line.strip.delete_prefix('sidekiq_options ')} }")
    assert_equal "until_executed", Serverlock::Sidekiq.options(options.transform_keys(&:to_s))["unique"]
  end
end
# rubocop:enable Style/EvalWithLocation, Style/DocumentDynamicEvalDefinition, Security/Eval
