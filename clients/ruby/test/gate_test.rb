# frozen_string_literal: true

require_relative "support"

# A gate lets in a few callers at a time, in order, whatever exceptions strike the waiting threads.
class GateTest < Minitest::Test
  def test_it_lets_in_only_that_many_at_a_time
    gate = Serverlock::Gate.new(2)
    inside = most = 0
    mutex = Mutex.new
    threads = Array.new(20) do
      Thread.new do
        50.times do
          gate.with do
            mutex.synchronize { most = [most, inside += 1].max }
            Thread.pass
            mutex.synchronize { inside -= 1 }
          end
        end
      end
    end
    threads.each(&:join)
    assert_equal [2, 0], [most, gate.in_use]
  end

  def test_waiters_that_are_killed_strand_nobody
    gate = Serverlock::Gate.new(1)
    served = Thread::Queue.new
    dice = Random.new(7)
    500.times do
      threads = Array.new(6) { Thread.new { gate.with { Thread.pass } && (served << true) } }
      threads.sample(3, random: dice).each(&:kill)
      threads.each { |thread| assert thread.join(60), "the thread waits forever" }
    end
    assert_equal 0, gate.in_use
    assert_operator served.size, :>=, 0
  end
end
