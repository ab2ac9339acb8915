# frozen_string_literal: true

module Serverlock
  # Calls and connections over redis-rb 4, where a Redis is one connection behind a monitor, or one for each node of a
  # cluster.
  # @private
  module Redis4
    FAILURES = [::Redis::BaseError, SystemCallError, IOError, SocketError, OpenSSL::SSL::SSLError].freeze
    private_constant :FAILURES

    module_function

    # Sends one call, once. The library closes the connection when the call fails or an exception interrupts it.
    #
    # The caller has masked exceptions: if one struck a thread that waits for the monitor, the next waiter would hang.
    def call(redis, command)
      once(redis, command)
    rescue Inherited
      once(redis, command)
    end

    # Sends TIME once, in a cluster to the node that has the key. The caller has masked exceptions.
    def time(redis, key)
      return call(redis, ["time"]) unless cluster?(redis)

      once(redis, ["time"]) do |cluster, command|
        node = cluster.send(:find_node, cluster.send(:find_node_key, ["get", key], primary_only: true))
        cluster.send(:try_send, node, :call, command)
      end
    end

    def once(redis, command)
      redis.send(:synchronize) do |client|
        client.with_reconnect(false) do
          Thread.handle_interrupt(ON_BLOCKING) { block_given? ? yield(client, command) : client.call(command) }
        end
      end
    rescue ::Redis::BaseError, *FAILURES => e
      translate { raise e }
    end

    def timeout(redis)
      redis._client.timeout
    end

    def cluster?(redis)
      redis._client.is_a?(::Redis::Cluster)
    end

    # Opens a connection of our own, to the node that has the key.
    def connection(redis, key = nil)
      return Connection.new(redis.dup._client) unless cluster?(redis)

      node = redis._client.send(:find_node, key && server(redis, key))
      Connection.new(::Redis::Client.new(node.options.dup))
    end

    # The name of the node in a cluster that has the key, after finding out if the slot has moved.
    def server(redis, key)
      call(redis, ["lock.check", key, 0])
      redis._client.send(:find_node_key, ["lock.check", key], primary_only: true)
    end

    # Opens connections of our own for keys anywhere.
    def calls(redis)
      cluster?(redis) ? ClusterCalls.new(self, redis.dup) : connection(redis)
    end

    # Yields the application's connection if nobody is using it. Returns whether it yielded.
    def borrow(redis)
      monitor = redis.instance_variable_get(:@monitor)
      return false unless monitor.try_enter

      begin
        yield cluster?(redis) ? ClusterCalls.new(self, redis) : Connection.new(redis._client)
      ensure
        monitor.exit
      end
      true
    end

    def translate
      yield
    rescue ::Redis::CommandError => e
      raise ReplyError, e.message
    rescue ::Redis::InheritedError => e
      raise Inherited, e.message
    rescue *FAILURES => e
      # The server refused the connection: this is how the library reports its reply.
      raise ReplyError, e.message if e.message.match?(/\A[A-Z]+ /)

      raise ConnectionLost, e.message
    end

    # A child used its parent's connection: nothing was sent, and the library has closed it.
    class Inherited < ConnectionLost
    end

    # @private
    class Connection
      include Exchange

      def initialize(client)
        @client = client
        @fork = Process.pid
      end

      def call(command, timeout)
        Redis4.translate do
          @client.with_reconnect(false) { @client.with_socket_timeout(timeout) { @client.call(command) } }
        end
      end

      # Returns the replies to these commands, including error replies.
      def pipeline(commands, timeout)
        replies = Redis4.translate do
          @client.with_reconnect(false) do
            @client.with_socket_timeout(timeout) do
              @client.process(commands) { Array.new(commands.size) { @client.read } }
            end
          end
        end
        replies.map { |reply| reply.is_a?(::Redis::CommandError) ? ReplyError.new(reply.message) : reply }
      end

      def connected?
        @client.connected?
      end

      # Sends a command whose reply is read later.
      def write(command)
        whole { Redis4.translate { @client.write(command) } }
      end

      def read
        whole do
          Redis4.translate do
            reply = @client.read
            raise reply if reply.is_a?(::Redis::CommandError)

            reply
          end
        end
      end

      # What the library reads from; nil where the driver does not expose it.
      def stream
        @client.connection&.instance_variable_get(:@sock)
      end

      def subscribe(channel, timeout)
        reply = Redis4.translate do
          @client.with_reconnect(false) { @client.with_socket_timeout(timeout) { @client.call(["subscribe", channel]) } }
        end
        raise ConnectionLost, "no subscription" unless reply.is_a?(Array)

        @client.connection.timeout = 0
      end

      # Returns the next message, or :pong. Blocks until one arrives, or the connection ends.
      def message
        reply = Redis4.translate { @client.read }
        reply[0] == "message" ? reply[2].b : :pong
      end

      # Not called by the thread that reads.
      def ping
        Redis4.translate { @client.write(["ping"]) }
      end

      # Ends another thread's read.
      def shutdown
        socket&.shutdown
      rescue SystemCallError, IOError
        nil
      end

      def close
        @client.disconnect if Process.pid == @fork
      rescue *FAILURES
        nil
      end
    end
  end
end
