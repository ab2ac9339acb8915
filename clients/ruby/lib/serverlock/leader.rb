# frozen_string_literal: true

module Serverlock
  # Campaigns for a key until it is stopped. `on_elected` and `on_deposed` are called with the token, in the campaign's
  # thread.
  class Leader
    # How many seconds one campaign waits.
    WAIT = 60
    # @private
    PAUSE = 0.5
    # @private
    LOOKS_EVERY = 1.0

    # @private
    def initialize(locks, lock, on_elected, on_deposed)
      @locks = locks
      @lock = lock
      @on_elected = on_elected
      @on_deposed = on_deposed
      @mutex = Mutex.new
      @changed = locks.engine.clock.condition
      @held = nil
      @wish = nil
    end

    # @return [self]
    def start
      @mutex.synchronize { @thread ||= @locks.engine.thread("leader") { campaign } }
      self
    end

    # @return [Integer, nil] the token while this process leads
    def token
      held = @held
      held.token if held&.held?
    end

    # @return [Boolean]
    def leader?
      !token.nil?
    end

    # Steps down, and campaigns again after others have had their turn.
    def resign
      wish(:resign)
    end

    # Steps down and stops campaigning. Returns once that is done.
    def stop
      thread = @mutex.synchronize { @thread }
      return unless thread

      wish(:stop)
      thread.kill unless @held
      thread.join unless thread == Thread.current
    end

    private

    def wish(wish)
      @mutex.synchronize do
        @wish = wish
        @changed.broadcast
      end
    end

    def campaign
      until @wish == :stop
        begin
          lead(@lock.acquire)
        rescue Misuse
          return # the manager is closed
        rescue Error => e
          @locks.engine.say("a campaign failed: #{e.message}") unless e.is_a?(TimedOut) || e.is_a?(Refused)
          @locks.engine.clock.sleep(PAUSE)
        end
      end
    ensure
      depose(@held)
    end

    def lead(held)
      @held = held
      held.on_lost { wish(nil) }
      @wish = nil if @wish == :resign
      tell(@on_elected, held.token)
      @mutex.synchronize { @changed.wait(@mutex, LOOKS_EVERY) while @wish.nil? && held.held? }
      depose(held)
    end

    def depose(held)
      return unless held && @held

      @held = nil
      begin
        held.release
      rescue Error
        nil
      end
      @wish = nil if @wish == :resign
      tell(@on_deposed, held.token)
    end

    def tell(callback, token)
      callback&.call(token)
    rescue StandardError => e
      @locks.engine.say("a callback failed: #{e.full_message(highlight: false)}")
    end
  end

  # Asks for the leader three times per lease.
  class Observer
    # @private
    def initialize(locks, request, callback)
      @locks = locks
      @request = request
      @callback = callback
      @is_over = false
      @thread = locks.engine.thread("observer") { watch }
    end

    # Stops watching.
    def stop
      @is_over = true
      @thread.kill
      nil
    end

    private

    def watch
      seen = :nobody_yet
      until @is_over || @locks.engine.closed?
        begin
          now = look
          @callback.call(*now) if now != seen
          seen = now
        rescue ReplyError, ConnectionLost
          nil # the next look may succeed
        rescue StandardError => e
          @locks.engine.say("a callback failed: #{e.full_message(highlight: false)}")
        end
        @locks.engine.clock.sleep(@request.lease / 3)
      end
    end

    def look
      info = Request.fields(@locks.engine.client.call(["lock.info", @request.keys[0]]))
      info["state"] == "held" && info["lease-ms"].to_i.positive? ? [info["token"], info["owner"]] : [nil, nil]
    rescue ReplyError => e
      raise unless e.unknown_command?

      portable(@locks.engine.client.call(["get", @request.keys[0]]))
    end

    def portable(value)
      at, token, owner = value&.match(/\A(\d{10}\.\d{6})(\d{16})(?:\d{19})?(?: ([!-~]+))?\z/)&.captures
      at && at.to_f - (Portable::MARGIN / 1000.0) > Time.now.to_f ? [token.to_i, owner] : [nil, nil]
    end
  end
end
