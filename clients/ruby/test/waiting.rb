# frozen_string_literal: true

# Waits with a deadline.
module Waiting
  module_function

  def until(what, seconds = 60)
    ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    loop do
      found = begin
        yield
      rescue Redis::BaseConnectionError
        nil
      end
      return found if found
      raise "not within #{seconds} s: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends

      sleep(0.01)
    end
  end
end
