# frozen_string_literal: true

module Serverlock
  # A held lock. It is renewed while this object is referenced, until `release`.
  class Held
    # @return [Integer] grows with each grant of the key: storage that remembers the largest can refuse earlier holders
    attr_reader :token
    # @return [Predecessor, nil] with `details: true`: the last holder, if its lock expired
    attr_reader :predecessor
    # @private
    attr_reader :hold

    # @private
    def initialize(hold)
      @hold = hold
      @token = hold.token
      @predecessor = hold.predecessor
      hold.held_by(self)
    end

    # @return [String] the key, as bytes
    def key
      @hold.request.keys[0]
    end

    # @return [Array<String>]
    def keys
      @hold.request.keys
    end

    # @return [Float] seconds for which the lock is certainly still held; 0 once it is lost or released
    def left
      @hold.left
    end

    # @return [Boolean]
    def held?
      @hold.held?
    end

    # Fails if the lock is lost. Sends nothing.
    # @return [Float] seconds left
    # @raise [Lost]
    def check
      @hold.check
    end

    # Asks the server.
    # @return [Float] seconds left
    # @raise [Lost, NoServer]
    def verify
      mask { @hold.verify }
    end

    # Sets a new lease, counted from now. Renewals continue with that lease.
    # @param lease [Numeric, nil] seconds; nil: as long as before
    # @return [Float] seconds left
    # @raise [Lost, NoServer]
    def extend(lease = nil)
      lease = @hold.request.lease_of(lease) if lease
      mask { @hold.extend(lease) }
    end

    # Runs a command only if the lock is held: the server checks that in the same step.
    # @example
    #   held.fenced("SET", "result", "42")
    # @return [Object] its reply
    # @raise [Lost, NoServer]
    def fenced(*command)
      raise BadArgument, "fenced takes a command" if command.empty?

      mask { @hold.fenced(command) }
    end

    # Calls the block once, in one of the manager's threads, when the lock is lost.
    # @yieldparam held [Held]
    def on_lost(&callback)
      raise BadArgument, "on_lost takes a block" unless callback

      @hold.on_lost(&callback)
      self
    end

    # Releases the lock. With `reentrant`, each `acquire` needs a `release`, and only the last one does.
    # @return [Boolean] whether it was held to the end
    # @raise [Misuse] the second time
    def release
      mask { @hold.release }
    end

    # Whether a lock with `reentrant` may get it again.
    # @private
    def reentrant?
      true
    end

    # Ends the hold at the end of its scope. `is_over`: its block has ended normally.
    # @private
    # @return [Boolean] whether it was held to the end
    def finish(_is_over)
      @hold.release(entirely: true)
    end

    # @return [String]
    def inspect
      "#<Serverlock::Held #{@hold.request.name.inspect} token=#{@token} left=#{left.round(1)}>"
    end

    private

    def mask(&)
      Thread.handle_interrupt(ON_BLOCKING, &)
    end
  end
end
