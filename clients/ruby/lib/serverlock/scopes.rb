# frozen_string_literal: true

module Serverlock
  # The scopes that a caller is in: a thread, or a fiber of a scheduler. A hold that the caller may get again is a scope
  # too, until it is released.
  # @private
  class Scopes
    # One scope.
    Scope = Struct.new(:locks, :hold, :stack) do
      # Any thread may call it.
      def leave
        stack.delete_if { |other| other.equal?(self) }
      end
    end
    NAME = :serverlock_scopes

    def self.caller
      Fiber.current_scheduler ? Fiber.current : Thread.current
    end

    # How many of a manager's scopes are open in all threads.
    def self.size(locks)
      Thread.list.sum { |thread| (thread.thread_variable_get(NAME) || []).count { |scope| scope.locks.equal?(locks) } }
    end

    # The hold that the caller gets again, or nil.
    # @raise [Misuse] if it holds the lock, but must not get it again
    def held(request, locks)
      stack = own
      return if stack.nil? || stack.empty?

      stack.dup.each do |scope|
        hold = scope.hold
        next unless scope.locks.equal?(locks) && hold.held? && (hold.request.keys & request.keys).any?

        held = hold.held or next # nothing references it any more
        return held if request.reentrant && held.reentrant? && request.same_lock?(hold.request)

        raise Misuse.new("lock #{request.name.inspect}: its caller holds it already", key: request.name)
      end
      nil
    end

    def enter(locks, hold)
      stack = own || self.own = []
      scope = Scope.new(locks, hold, stack)
      stack << scope
      scope
    end

    private

    def own
      Fiber.current_scheduler ? Thread.current[NAME] : Thread.current.thread_variable_get(NAME)
    end

    def own=(stack)
      Fiber.current_scheduler ? Thread.current[NAME] = stack : Thread.current.thread_variable_set(NAME, stack)
    end
  end

  # The thread that runs the body of a scope with `interrupt: true`.
  # @private
  class Body
    def initialize(hold)
      @hold = hold
      @thread = Thread.current
      hold.body = self
    end

    # Called with the hold's mutex locked.
    def interrupt(error)
      @error = error
      @thread.raise(error)
    end

    # From now on nothing interrupts it; an interrupt on its way is caught here.
    def close
      Thread.handle_interrupt(NEVER) { @hold.body = nil }
      return unless @error

      begin
        Thread.handle_interrupt(Lost => :immediate) { Thread.pass }
      rescue Lost => e
        raise unless e.equal?(@error)
      end
    end
  end
end
