# frozen_string_literal: true

require "timeout"

module Serverlock
  # Every error of this package includes it. Rescue it to catch all of them, or rescue one of their classes.
  module Error
    # @return [String, nil] the lock's key; several keys are joined into one text
    attr_reader :key

    # @param text [String]
    # @param key [String, nil]
    def initialize(text = nil, key: nil)
      super(text)
      @key = key
    end

    # @return [Symbol] the kind of error, the same in every version and every language
    def code
      self.class::CODE
    end
  end

  # Somebody else has the lock.
  class Refused < StandardError
    include Error
    CODE = :refused
  end

  # Somebody else still had the lock when the wait ended. It is also a Timeout::Error.
  class TimedOut < ::Timeout::Error
    include Error
    CODE = :timeout
  end

  # The hold has ended: from now on, others may have the lock.
  class Lost < StandardError
    include Error
    CODE = :lost
  end

  # This wait would close a cycle of sessions that wait for each other.
  class Deadlock < StandardError
    include Error
    CODE = :deadlock
  end

  # The server cannot grant locks now, has too few replicas, or lacks the module.
  class Unavailable < StandardError
    include Error
    CODE = :unavailable
  end

  # The server does not allow this user the command, the key or the connection.
  class Denied < StandardError
    include Error
    CODE = :denied
  end

  # No connection, or no reply in time.
  class NoServer < StandardError
    include Error
    CODE = :no_server
  end

  # An argument that the server would reject. It is also an ArgumentError.
  class BadArgument < ::ArgumentError
    include Error
    CODE = :argument
  end

  # Asking for a lock within its own scope, using a closed manager, or releasing a hold twice.
  class Misuse < StandardError
    include Error
    CODE = :misuse
  end

  # An error reply from the server, unchanged.
  # @private
  class ReplyError < StandardError
    AGAIN = %w[UNBLOCKED MOVED ASK READONLY LOADING CLUSTERDOWN TRYAGAIN MASTERDOWN BUSY MISCONF OOM NOREPLICAS GRACE
               BUSYLOCKS].freeze
    UNAVAILABLE = [*AGAIN, "CLOCK"].freeze
    DENIED = %w[NOPERM NOAUTH WRONGPASS].freeze

    # @return [String] the first word of the reply
    def reply_code
      message[/\A\S+/] || ""
    end

    # Whether the same call may succeed later.
    def again?
      AGAIN.include?(reply_code) && !message.start_with?("GRACE lease", "BUSYLOCKS 64 waits")
    end

    # Whether the server lacks the module.
    def unknown_command?
      message.match?(/\AERR unknown command/i)
    end

    # Whether a RELEASE can be sent again without its result.
    def result_too_long?
      message.start_with?("ERR result is longer")
    end

    # @return [Exception] the error for users
    def for(name)
      kind = case reply_code
             when *UNAVAILABLE then Unavailable
             when *DENIED then Denied
             when "DEADLOCK" then Deadlock
             else BadArgument
             end
      kind.new("lock #{name.inspect}: #{message}", key: name)
    end
  end

  # The connection failed, or no reply came in time. The call may have been carried out.
  # @private
  class ConnectionLost < StandardError
  end
end
