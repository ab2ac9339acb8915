# frozen_string_literal: true

module Serverlock
  # The connection on which a manager's only wait blocks. That takes one round trip, where NOTIFY takes two and a
  # message. The connection is kept for the next such wait.
  #
  # Once a second attempt is waiting too, all attempts wait with NOTIFY, and this connection is closed. While it
  # is open, it takes one of the slots that calls have in a pool; it is closed when they need that slot.
  # @private
  class Lone
    include Locking

    PIECE = 2.0

    def initialize(engine)
      @engine = engine
      @mutex = Mutex.new
      @connection = nil
      @is_used = false
      @is_narrow = false
      @is_over = false
    end

    # Whether a wait may begin here: the connection is open, and nobody is waiting on it.
    def ready?
      !@is_over && !@is_used && @connection&.connected?
    end

    # Whether others have waited too, or needed the slot.
    def over?
      @is_over
    end

    # Yields if nobody else is waiting. The caller has masked exceptions.
    def with
      return unless enter

      begin
        yield
      ensure
        leave
      end
    end

    # For the caller in `with`.
    def connection
      @connection = nil unless @connection&.connected?
      @connection ||= @engine.client.connection
    end

    # For the caller in `with`, after an error.
    def drop
      @connection&.close
      @connection = nil
    end

    # Closes the connection because others need the slot. A blocked wait keeps it until the end of its piece.
    def give_way
      locked do
        @is_over = true
        ended unless @is_used
      end
    end

    # Closes the connection, which also ends the wait.
    def close
      give_way
      @connection&.shutdown
    end

    private

    def enter
      locked do
        next @is_used = true if !@is_used && !@is_over && (@is_narrow ||= @engine.client.narrow { give_way })

        @is_over = true
        ended unless @is_used
        false
      end
    end

    def leave
      locked do
        @is_used = false
        ended if @is_over
      end
    end

    # Called with the mutex locked, when nobody is using the connection.
    def ended
      drop
      @engine.client.widen if @is_narrow
      @is_narrow = false
    end
  end
end
