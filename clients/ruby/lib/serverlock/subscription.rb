# frozen_string_literal: true

require "securerandom"

module Serverlock
  # The one connection of a manager on which messages for its waits arrive, and the waits themselves.
  # @private
  class Subscription
    # Without news, an attempt is sent again after so many seconds: half of `lock.place-ms`.
    NO_NEWS = 5.0
    # Of very many, each waits longer: no more copies than this in a second.
    COPIES = 100.0
    WHILE_DOWN = 1.0
    SPREAD = 1.0
    # After a refusal it is tried again.
    REFUSED_FOR = 60.0

    # What an attempt waits on.
    class Wait
      attr_reader :changed, :request, :id, :call
      # `asks`: a copy is on its way; `turn`: the next copy is a claim, or has to be; `answered`: `reply` is there, to the
      # copy that was sent at `sent`.
      attr_accessor :news, :resend_at, :asks, :turn, :answered, :reply, :sent, :gone

      def initialize(request, id, call)
        @changed = ConditionVariable.new
        @request = request
        @id = id
        @call = call
      end

      def take
        @answered = false
        reply = @reply
        @reply = nil
        reply
      end
    end

    # A copy of an attempt, for {Renewals}.
    class Copy
      def initialize(subscription, wait)
        @subscription = subscription
        @wait = wait
      end

      def gone?
        @wait.gone
      end

      def renewal
        @was_turn = @wait.turn
        @wait.turn = false
        @sent = Clock.now
        @wait.call.call
      end

      def needs_module?
        true
      end

      def lease_s
        Float::INFINITY
      end

      def renewed(reply)
        @subscription.answer(@wait, reply, @sent, @was_turn)
      end

      def not_renewed
        renewed(ConnectionLost.new("no reply in time"))
      end
    end

    attr_reader :channel

    def initialize(engine)
      @engine = engine
      @channel = "serverlock:#{SecureRandom.hex(12)}"
      @mutex = Mutex.new
      @changed = ConditionVariable.new
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

    # For how many seconds an attempt waits for news before it is sent again.
    def patience
      up? ? [NO_NEWS, @waits.size / COPIES].max : WHILE_DOWN
    end

    # Whether the server does not let us listen.
    def refused?
      Clock.now < @refused_until
    end

    def refuse
      @refused_until = Clock.now + REFUSED_FOR
    end

    # The block returns the call of the attempt, for the time that is left.
    def register(request, id, &call)
      wait = Wait.new(request, id, call)
      wait.resend_at = Clock.now + patience
      locked { @waits[id] = wait }
    end

    def forget(id)
      locked do
        wait = @waits.delete(id)
        wait.gone = true if wait
      end
    end

    # The caller sends a copy by himself in this block.
    def alone(wait)
      locked { wait.asks = true }
      yield
    ensure
      locked do
        wait.asks = false
        post(wait) if wait.turn
      end
    end

    # Sends a copy, unless one is on its way.
    def send_again(wait)
      locked { post(wait) }
    end

    # Waits until that time for the reply to a copy that grants the lock or fails (:reply), or for news: a Symbol. Sends
    # copies meanwhile.
    def await(wait, ends)
      locked do
        until @engine.closed?
          return :reply if wait.answered
          return wait.news.tap { wait.news = nil } if wait.news

          now = Clock.now
          return if now >= ends

          keep_place(wait, now) if now >= wait.resend_at
          left = [ends, wait.resend_at].min - now
          Thread.handle_interrupt(ON_BLOCKING) { wait.changed.wait(@mutex, left) } if left.positive?
        end
      end
    end

    # The reply to a copy. An attempt that was given up meanwhile has sent CANCEL already, perhaps before this copy.
    def answer(wait, reply, sent, was_turn)
      gone = locked do
        wait.asks = false
        if reply == "WAITING"
          wait.resend_at = Clock.now + patience
          # A turn that was claimed too late: the server passes all attempts of this process over.
          spread if was_turn
          post(wait) if wait.turn
        else
          wait.answered = true
          wait.reply = reply
          wait.sent = sent
          wait.changed.signal
        end
        wait.gone
      end
      @engine.settlement.cancel(wait.request, wait.id) if gone
    end

    # Opens it, and waits until it is confirmed or failed, no longer than `seconds`.
    def listen(seconds)
      ends = Clock.now + seconds
      locked do
        if @thread.nil?
          @state = :opening
          @thread = @engine.thread("subscription") { work }
        end
        while @state == :opening && (left = ends - Clock.now).positive? && !@engine.closed?
          Thread.handle_interrupt(ON_BLOCKING) { @changed.wait(@mutex, left) }
        end
      end
    end

    def close
      locked do
        @waits.each_value { |wait| wait.changed.signal }
        @changed.broadcast
      end
      @connection&.shutdown
    end

    private

    # By a caller, whom nothing strikes while it waits for this.
    def locked(&)
      Thread.handle_interrupt(NEVER) { @mutex.synchronize(&) }
    end

    # What follows is called with the mutex locked.

    def post(wait)
      return if wait.asks || wait.gone

      wait.asks = true
      @engine.renewals.push([Copy.new(self, wait)])
    end

    # Without news for long: a copy keeps the place.
    def keep_place(wait, now)
      wait.resend_at = now + patience
      post(wait)
      ask(now)
    end

    # Whether the connection still answers.
    def ask(now)
      return unless @state == :up

      if @asked_at && now - @asked_at > @engine.patience
        @connection&.shutdown
      elsif @asked_at.nil? && now - @heard_at > NO_NEWS - 1
        @asked_at = now
        @connection&.ping
      end
    rescue ReplyError, ConnectionLost
      nil # the thread that reads learns of it
    end

    # All attempts are sent again, spread over a second.
    def spread
      now = Clock.now
      @waits.each_value do |wait|
        next if wait.asks || wait.resend_at <= now + SPREAD

        wait.resend_at = now + (@engine.random.rand * SPREAD)
        wait.changed.signal
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
            sleep(pause)
          else
            refuse
            return ended
          end
        rescue ConnectionLost
          down
          sleep(pause * (0.5 + @engine.random.rand))
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
        @heard_at = Clock.now
        @asked_at = nil
        spread
        @changed.broadcast
      end
      loop { hear(@connection.message) }
    end

    def hear(message)
      @heard_at = Clock.now
      @asked_at = nil
      return if message == :pong

      word, id, = message.split(" ", 3)
      @mutex.synchronize do
        wait = @waits[id.to_i]
        next unless wait

        if word == "granted"
          wait.turn = true
          post(wait)
        else
          wait.news = word.to_sym
          wait.changed.signal
        end
      end
    end
  end
end
