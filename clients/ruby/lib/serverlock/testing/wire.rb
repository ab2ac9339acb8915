# frozen_string_literal: true

module Serverlock
  module Testing
    # The commands of a {Memory}, in the form in which {Redis5} has those of redis-rb.
    # @private
    class Wire
      TIMEOUT = 5.0

      def initialize(memory)
        @memory = memory
        @commands = Commands.new(memory)
      end

      def call(_client, words)
        @commands.call(words)
      end

      def time(_client, _key)
        @commands.call(["time"])
      end

      def timeout(_client)
        TIMEOUT
      end

      def cluster?(_client)
        false
      end

      def connection(_client, _key = nil)
        Connection.new(@memory, @commands)
      end

      def calls(client)
        connection(client)
      end

      def borrow(client)
        yield connection(client)
        true
      end
    end

    # A manager's own connection. Nothing arrives over a socket, so there is nothing to watch.
    # @private
    class Connection
      def initialize(memory, commands)
        @memory = memory
        @commands = commands
        @messages = memory.clock.queue
        @is_open = true
      end

      def call(words, _timeout)
        raise ConnectionLost, "the connection was closed" unless @is_open

        @commands.call(words, self)
      end

      def pipeline(commands, timeout)
        commands.map do |words|
          call(words, timeout)
        rescue ReplyError => e
          e
        end
      end

      def connected?
        @is_open
      end

      def stream
        nil
      end

      def socket
        nil
      end

      def subscribe(channel, _timeout)
        @memory.subscribe(channel, self)
      end

      # Called by the server.
      def deliver(message)
        @messages << message
      end

      # Returns the next message. Blocks until one arrives, or the connection ends.
      def message
        message = @is_open ? @messages.pop : nil
        raise ConnectionLost, "the connection was closed" unless message

        message
      end

      def ping
        @messages << :pong
      end

      # Ends another thread's wait.
      def shutdown
        return unless @is_open

        @is_open = false
        @memory.disconnect(self)
        @messages << nil
      end

      def close
        shutdown
      end
    end
  end
end
