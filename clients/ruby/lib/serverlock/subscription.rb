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
      attr_reader :changed
      attr_accessor :news, :resend_at

      def initialize
        @changed = ConditionVariable.new
        @news = nil
        @resend_at = nil
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

    def register(id)
      wait = Wait.new
      locked { @waits[id] = wait }
      wait
    end

    def forget(id)
      locked { @waits.delete(id) }
    end

    # Opens it, and waits until it is confirmed or failed, no longer than `seconds`.
    def await(seconds)
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

    # Waits for news of an attempt until that time. Returns it: a Symbol, or nil.
    def news(wait, at)
      locked do
        until wait.news || @engine.closed?
          left = [at, wait.resend_at || at].min - Clock.now
          break unless left.positive?

          Thread.handle_interrupt(ON_BLOCKING) { wait.changed.wait(@mutex, left) }
        end
        news = wait.news
        wait.news = nil
        wait.resend_at = nil
        news
      end
    end

    # Called by an attempt that had no news for long: whether the connection still answers.
    def ask
      connection = locked { @connection if @state == :up }
      return unless connection

      now = Clock.now
      if @asked_at && now - @asked_at > @engine.patience
        connection.shutdown
      elsif @asked_at.nil? && now - @heard_at > NO_NEWS - 1
        @asked_at = now
        connection.ping
      end
    rescue ReplyError, ConnectionLost
      nil # the thread that reads learns of it
    end

    # All attempts are sent again, spread over a second.
    def resend_all
      locked { spread }
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

    def spread
      now = Clock.now
      @waits.each_value do |wait|
        wait.resend_at ||= now + (@engine.random.rand * SPREAD)
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
        @waits.each_value { |wait| wait.changed.signal }
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
      news = word.to_sym
      @mutex.synchronize do
        wait = @waits[id.to_i]
        next unless wait

        # A turn is not forgotten for an older message.
        wait.news = news unless wait.news == :granted && news == :unblocked
        wait.changed.signal
        @engine.client.hurry(wait)
      end
    end
  end
end
