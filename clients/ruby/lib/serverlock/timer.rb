# frozen_string_literal: true

module Serverlock
  # Finds the holds that are lost or due for renewal, and the waits that need a copy to keep their place. Each manager
  # has one thread, and a queue ordered by time that only this thread touches: callers hand new items over.
  #
  # An item has `due_at`, the time of its first look; `look(now, due)`, which adds to `due` what {Renewals} is to send
  # and returns when to look again (infinity: never); and `looked_at`, which the timer writes.
  # @private
  class Timer
    include Locking

    # A thread sleeps through a suspend.
    LONGEST = 1.0
    # An idle manager causes no wake-ups after this.
    LINGERS = 5.0
    # An item that has ended leaves the queue after this many seconds.
    LEAVES = 60.0

    def initialize(engine)
      @engine = engine
      @mutex = Mutex.new
      @changed = engine.clock.condition
      @holds = {}.compare_by_identity
      @fresh = Thread::Queue.new
      # Pairs of a time and an item, the earliest last.
      @queue = []
      # When the thread looks again; -1 while it looks.
      @next_at = -1.0
      @woken = false
      @thread = nil
    end

    def add(hold)
      @holds[hold] = true
      schedule(hold)
    end

    def remove(hold)
      @holds.delete(hold)
    end

    # How many locks are held.
    def size
      @holds.size
    end

    # Adds an item, or looks at it earlier than planned.
    def schedule(item)
      @fresh << item
      next_at = @next_at
      wake unless @thread && next_at >= 0 && next_at <= item.due_at
    end

    # Looks at once. A woken thread that has not begun yet finds all new items, too.
    def wake
      return if @woken && @thread

      locked do
        @thread ||= @engine.thread("timer") { work } unless @fresh.empty?
        @woken = true
        @changed.signal
      end
    end

    private

    def work
      busy_at = @engine.clock.now
      loop do
        @next_at = -1.0
        now = @engine.clock.now
        # Many locks may end before the thread looks, so it is woken only for the first.
        busy_at = now if @woken || !@holds.empty?
        @woken = false
        look(now)
        at = @queue.empty? ? Float::INFINITY : @queue.last[0]
        at = [at, now + LONGEST].min if now - busy_at < LINGERS
        return if sleep_until(at)
      end
    end

    def look(now)
      due = []
      place(@fresh.pop, now, due) until @fresh.empty?
      while (at, item = @queue.last) && at <= now
        @queue.pop
        place(item, now, due) if item.looked_at == at
      end
      @engine.renewals.push(due) unless due.empty?
      @engine.subscription.look(now)
    end

    def place(item, now, due)
      at = item.look(now, due)
      return item.looked_at = nil if at == Float::INFINITY

      # A look that was queued earlier is out of date.
      item.looked_at = at = [at, now + LEAVES].min
      @queue.insert(@queue.bsearch_index { |other, _| other <= at } || @queue.size, [at, item])
    end

    # Returns true if this thread has to end.
    def sleep_until(at)
      @mutex.synchronize do
        if @engine.closed? && @holds.empty?
          @thread = nil
          return true
        end
        return false if @woken

        at = [at, @engine.clock.now + LONGEST].min unless @holds.empty?
        @next_at = at
        left = at - @engine.clock.now
        if at == Float::INFINITY
          @changed.wait(@mutex)
        elsif left.positive?
          @changed.wait(@mutex, left)
        end
      end
      false
    end
  end
end
