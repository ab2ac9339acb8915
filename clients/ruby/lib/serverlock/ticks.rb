# frozen_string_literal: true

module Serverlock
  # Numbers the ticks of a period on the server's clock. The caller passes the time. Times are in seconds.
  #
  # A tick begins at a multiple of the period. Its window is the time that is nearer to it than to any other tick: it
  # begins and ends half a period before and after the tick.
  # @private
  module Ticks
    LEAST_PERIOD = 10.0
    # How much later than its window's end a kept lease may end: twice ServerClock::MOST_DOUBT, plus the time to reach
    # the server.
    SLACK = 1.0

    module_function

    # The nearest tick. Halfway between two, it is the later one, because the earlier one's window has ended.
    def at(server_now, period)
      ((server_now / period) + 0.5).floor
    end

    # When the tick's window begins.
    def begins(tick, period)
      (tick - 0.5) * period
    end

    # When the tick's window ends.
    def ends(tick, period)
      (tick + 0.5) * period
    end

    # Whether a lease that expired then was that of a process that died within this window. The lease of a tick that has
    # run expires when its window ends, which is when the next window begins.
    def recovery?(expired, tick, period)
      expired > begins(tick, period) + SLACK
    end

    # Short enough that another process may still run the tick if one dies soon after the tick begins.
    def default_lease(period)
      [10.0, period / 4].min
    end
  end
end
