# frozen_string_literal: true

require "securerandom"

module Serverlock
  # A manager's only connection for messages to its waits, and the waits themselves.
  # @private
  class Subscription
    include Locking

    # Without news, an attempt is sent again after this many seconds: half of `lock.place-ms`.
    NO_NEWS = 5.0
    WHILE_DOWN = 1.0
    # Copies are due at multiples of this, so that one pipeline carries many attempts' copies.
    GRAIN = 0.1
    SPREAD = 1.0
    # Seconds after a refusal until subscribing is tried again.
    REFUSED_FOR = 60.0

    attr_reader :channel

    def initialize(engine)
      @engine = engine
      @channel = "serverlock:#{SecureRandom.hex(12)}"
      @mutex = Mutex.new
      @changed = engine.clock.condition
      @waits = {}
      @state = :none
      @refused_until = 0.0
      @thread = nil
    end

    def size
      @waits.size
    end

    def up?
      @state == :up
    end

    # Whether the server refuses the subscription.
    def refused?
      @engine.clock.now < @refused_until
    end

    def refuse
      @refused_until = @engine.clock.now + REFUSED_FOR
    end

    # Adds a wait that ends at `ends`. The block returns the attempt's call for the remaining time.
    def register(request, id, ends, &call)
      wait = Wait.new(self, @engine.clock, request, id, ends, call)
      wait.resend_at = next_copy(@engine.clock.now)
      locked do
        @waits[id] = wait
        wait.finish(:subscription_refused) if refused?
      end
      wait
    end

    def forget(id)
      locked do
        wait = @waits.delete(id)
        wait.gone = true if wait
      end
    end

    # The caller sends a copy itself in this block, whose value is the reply.
    def alone(wait)
      locked { wait.asks = true }
      reply = yield
    ensure
      locked do
        wait.asks = false
        if (pause = Wait.pause(reply))
          wait.resend_at = next_copy(@engine.clock.now, pause)
        else
          wait.over = true
        end
        post(wait) if wait.turn
      end
      @engine.timer.schedule(wait) unless wait.over
    end

    # Call this when the attempts have to join a different queue.
    def send_all_again
      locked { spread }
    end

    # Sends a copy, unless one is on its way.
    def send_again(wait)
      locked { post(wait) }
      @engine.timer.schedule(wait)
    end

    # For the timer: sends a copy of an attempt that has had no news for a long time, and returns when to look again.
    def keep_place(wait, now, due)
      locked do
        next Float::INFINITY if wait.over || wait.gone

        if now >= wait.ends
          wait.finish(:timeout)
          next Float::INFINITY
        end
        if now >= wait.resend_at
          wait.resend_at = next_copy(now)
          due << copy(wait) unless wait.asks
        end
        wait.due_at
      end
    end

    # For the timer: whether the connection still answers.
    def look(now)
      return if @waits.empty? || @state != :up

      if @asked_at && now - @asked_at > @engine.patience
        @connection&.shutdown
      elsif @asked_at.nil? && now - @heard_at > NO_NEWS - 1
        @asked_at = now
        @connection&.ping
      end
    rescue ReplyError, ConnectionLost
      nil # the reading thread notices that the connection has ended
    end

    # Handles the reply to a copy. An attempt that was given up has already sent CANCEL, perhaps before this copy.
    def answer(wait, reply, sent, was_turn)
      locked do
        wait.asks = false
        if wait.gone
          @engine.debts.cancel(wait.request, wait.id, unanswered: reply.is_a?(ConnectionLost))
        elsif (pause = Wait.pause(reply))
          wait.resend_at = next_copy(@engine.clock.now, pause)
          @engine.timer.schedule(wait) if pause < NO_NEWS
          # A grant that was claimed too late: the server skips the channel of this process.
          spread if was_turn
          post(wait) if wait.turn
        else
          # The message for this grant may still arrive: a copy sent then would be cancelled, and with it the lock.
          wait.over = true
          wait.finish(Wait::Reply.new(reply, sent))
        end
      end
    end

    # Opens the subscription, and waits at most `seconds` for it to be confirmed or to fail. `until_up`: to be
    # confirmed or refused.
    def listen(seconds, until_up: false)
      ends = @engine.clock.now + seconds
      waits = until_up ? %i[opening down] : %i[opening]
      locked do
        if @thread.nil?
          @state = :opening
          @thread = @engine.thread("subscription") { work }
        end
        while waits.include?(@state) && (left = ends - @engine.clock.now).positive? && !@engine.closed?
          Thread.handle_interrupt(ON_BLOCKING) { @changed.wait(@mutex, left) }
        end
      end
    end

    def close
      locked do
        @waits.each_value { |wait| wait.finish(:closed) }
        @changed.broadcast
      end
      @connection&.shutdown
    end

    private

    # The methods below are called with the mutex locked.

    def post(wait)
      @engine.renewals.push([copy(wait)]) unless wait.asks || wait.over || wait.gone
    end

    def copy(wait)
      wait.asks = true
      Copy.new(self, wait)
    end

    def next_copy(now, pause = NO_NEWS)
      pause = [pause, WHILE_DOWN].min unless up?
      return now + pause if pause < WHILE_DOWN || (pause < NO_NEWS && up?)

      ((now + pause) / GRAIN).floor * GRAIN
    end

    # Sends all attempts again, spread over a second.
    def spread
      now = @engine.clock.now
      @waits.each_value do |wait|
        next if wait.asks || wait.over || wait.resend_at <= now + SPREAD

        wait.resend_at = now + (@engine.random.rand * SPREAD)
        @engine.timer.schedule(wait)
      end
    end

    def work
      pause = 0.05
      until @engine.closed?
        begin
          read
          pause = 0.05
        rescue ReplyError => e
          if e.again?
            @engine.clock.sleep(pause)
          else
            refuse
            return ended
          end
        rescue ConnectionLost
          down
          @engine.clock.sleep(pause * (0.5 + @engine.random.rand))
          pause = [pause * 2, 1.0].min
        ensure
          @connection&.close
          @connection = nil
        end
      end
      ended
    end

    def ended
      @mutex.synchronize do
        @state = :none
        @thread = nil
        @waits.each_value { |wait| wait.finish(:subscription_refused) } if refused?
        spread
        @changed.broadcast
      end
    end

    def down
      @mutex.synchronize do
        @state = :down
        spread
        @changed.broadcast
      end
    end

    def read
      @connection = @engine.client.connection
      @connection.subscribe(@channel, @engine.patience)
      @mutex.synchronize do
        @state = :up
        @heard_at = @engine.clock.now
        @asked_at = nil
        spread
        @changed.broadcast
      end
      loop { hear(@connection.message) }
    end

    def hear(message)
      @heard_at = @engine.clock.now
      @asked_at = nil
      return if message == :pong

      word, id, = message.split(" ", 3)
      @mutex.synchronize do
        wait = @waits[id.to_i]
        next unless wait

        if %w[granted result].include?(word)
          wait.turn = true
          post(wait)
        else
          wait.finish(word.to_sym)
        end
      end
    end
  end
end
