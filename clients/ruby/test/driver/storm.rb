# frozen_string_literal: true

require "timeout"

# The `storm` request of the suite: thousands of attempts, most of them cancelled.
module Storm
  private

  def do_storm(order)
    counts = { granted: 0, cancelled: 0, refused: 0 }
    failed = []
    left = Queue.new
    order["attempts"].times { left << true }
    left.close
    threads = Array.new(order["at_once"]) do
      Thread.new do
        while left.pop
          outcome, text = one_of_storm(order)
          @mutex.synchronize { outcome == :failed ? failed << text : counts[outcome] += 1 }
        end
      end
    end
    threads.each(&:join)
    { **counts, failed: }
  end

  def one_of_storm(order)
    after = moment(order["within_ms"]) / 1000.0
    options = { manager: order["manager"], key: order["among"].sample, lease: order["lease_ms"] / 1000.0,
                wait: (order["wait_ms"] || 0) / 1000.0 }
    options[:flight] = order["single_flight"]
    return attempt(options) { |play| Timeout.timeout([after, 0.00001].max, Cancelled) { play.call } } if order["means"] == "timeout"

    outcome = nil
    thread = Thread.new { outcome = attempt(options, &:call) }
    thread.report_on_exception = false
    thread.join(after)
    order["means"] == "kill" ? thread.kill : thread.raise(Cancelled)
    begin
      thread.join(60) or return [:failed, "it hangs: #{thread.backtrace.join("\n")}"]
    rescue Cancelled
      nil
    end
    outcome || :cancelled
  end

  def attempt(options)
    options = options.dup
    key = options.delete(:key)
    locks = @managers[options.delete(:manager)]
    flight = options.delete(:flight)
    yield(-> { flight ? locks.single_flight(key, **options) { "result" } : locks.lock(key, **options).synchronize { nil } })
    :granted
  rescue Cancelled
    :cancelled
  rescue Serverlock::Refused, Serverlock::TimedOut
    :refused
  rescue StandardError => e
    [:failed, e.full_message(highlight: false)]
  end

  def moment(within)
    at = within * (rand**3)
    rand < 0.25 ? (at / 5).round * 5 : at
  end
end
