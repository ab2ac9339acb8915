# frozen_string_literal: true

module Serverlock
  # Calls and connections over redis-rb 5, where a Redis is one redis-client client behind a monitor, or one for each
  # node of a cluster (the redis-clustering gem). The library closes an interrupted connection only when it is next
  # used, and its cluster client repeats a command whose connection was lost; this module prevents both.
  # @private
  module Redis5
    FAILURES = [::Redis::BaseError, SystemCallError, IOError, SocketError, OpenSSL::SSL::SSLError].freeze
    private_constant :FAILURES

    module_function

    # Sends one call, once. The caller has masked exceptions.
    def call(redis, command)
      translate do
        redis.send(:synchronize) do |client|
          cluster?(redis) ? routed(client, command) : once(client) { client.call_v(command) }
        end
      end
    end

    # Sends TIME once, in a cluster to the node that has the key. The caller has masked exceptions.
    def time(redis, key)
      return call(redis, ["time"]) unless cluster?(redis)

      translate { redis.send(:synchronize) { |client| routed(client, ["time"], key) } }
    end

    # Runs the block with that client, which closes its connection when an exception interrupts it.
    def once(client, &)
      result = Thread.handle_interrupt(ON_BLOCKING) { client.disable_reconnection(&) }
      done = true
      result
    rescue ::Redis::CommandError, ::RedisClient::CommandError
      done = true
      raise
    ensure
      client.close unless done
    end

    # Sends the command to the node that has the key. Follows at most three redirections.
    def routed(client, command, key = nil)
      router = client.send(:router)
      first = key ? router.find_node_key_by_key(key, primary: true) : router.find_primary_node_key(command)
      node = first ? router.find_node(first) : router.assign_node(command)
      left = 3
      begin
        once(node) { node.call_v(command) }
      rescue ::RedisClient::CommandError => e
        raise if (left -= 1).negative?

        case e.message
        when /\AMOVED / then node = router.assign_redirection_node(bare(e.message))
        when /\AASK /
          node = router.assign_asking_node(bare(e.message))
          node.call("ASKING")
        else raise
        end
        retry
      rescue ::RedisClient::ConnectionError
        renew(router)
        raise
      end
    end

    # The nodes may have changed roles. The method's name differs between versions of redis-cluster-client.
    def renew(router)
      router.send(%i[renew_cluster_state update_cluster_info!].find { |name| router.respond_to?(name, true) })
    rescue ::RedisClient::Error
      nil # the next call tries again
    end

    def timeout(redis)
      redis._client.timeout
    end

    def cluster?(redis)
      !redis._client.is_a?(::RedisClient)
    end

    # Opens a connection of our own, to the node that has the key.
    def connection(redis, key = nil)
      return Connection.new(redis.dup._client) unless cluster?(redis)

      translate do
        router = redis._client.send(:router)
        node = router.find_node(key ? server(redis, key) : router.find_node_key_by_key(key, primary: true))
        Connection.new(::RedisClient.new(node.config))
      end
    end

    # The name of the node in a cluster that has the key, after finding out if the slot has moved.
    def server(redis, key)
      call(redis, ["lock.check", key, 0])
      translate { redis._client.send(:router).find_node_key_by_key(key, primary: true) }
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
    rescue ::Redis::CommandError, ::RedisClient::CommandError => e
      raise ReplyError, bare(e.message)
    rescue ::RedisClient::Error, *FAILURES => e
      # READONLY, MASTERDOWN and replies to a new connection are connection errors to the library.
      raise ReplyError, bare(e.message) if e.message.match?(/\A[A-Z]+ /)

      raise ConnectionLost, e.message
    end

    # Removes the address that the library adds to the server's text.
    def bare(message)
      message.sub(%r{ \((?:rediss?|unix)://[^ ]*\)\z}, "")
    end

    # @private
    class Connection
      include Exchange

      def initialize(client)
        @client = client
        @fork = Process.pid
      end

      def call(command, timeout)
        Redis5.translate { within(timeout) { @client.call_v(command) } }
      end

      # Returns the replies to these commands, including error replies.
      def pipeline(commands, timeout)
        replies = Redis5.translate do
          within(timeout) do
            @client.pipelined(exception: false) { |pipeline| commands.each { |command| pipeline.call_v(command) } }
          end
        end
        replies.map { |reply| reply.is_a?(::RedisClient::Error) ? ReplyError.new(Redis5.bare(reply.message)) : reply }
      end

      def connected?
        @client.connected?
      end

      # Sends a command whose reply is read later.
      def write(command)
        whole { Redis5.translate { raw.write(command) } }
      end

      def read
        whole do
          Redis5.translate do
            reply = raw.read
            raise reply if reply.is_a?(::RedisClient::Error)

            reply
          end
        end
      end

      # What the library reads from; nil where the driver does not expose it.
      def stream
        raw&.instance_variable_get(:@io)&.instance_variable_get(:@io)
      end

      def subscribe(channel, timeout)
        Redis5.translate do
          @messages = @client.pubsub
          @messages.call_v(["subscribe", channel])
          reply = @messages.next_event(timeout)
          raise reply if reply.is_a?(::RedisClient::Error)
          raise ConnectionLost, "no subscription" unless reply.is_a?(Array)
        end
      end

      # Returns the next message, or :pong. Blocks until one arrives, or the connection ends.
      def message
        reply = Redis5.translate { @messages.next_event(0) }
        reply.is_a?(Array) && reply[0] == "message" ? reply[2].b : :pong
      end

      # Not called by the thread that reads.
      def ping
        Redis5.translate { @messages.call_v(["ping"]) }
      end

      # Ends another thread's read.
      def shutdown
        socket&.shutdown
      rescue SystemCallError, IOError
        nil
      end

      def close
        return if Process.pid != @fork

        @messages&.close
        @client.close
      rescue ::RedisClient::Error, *FAILURES
        nil
      end

      private

      def raw
        @messages ? @messages.send(:raw_connection) : @client.instance_variable_get(:@raw_connection)
      end

      def within(timeout, &)
        before = @client.read_timeout
        @client.read_timeout = timeout
        Redis5.once(@client, &)
      ensure
        @client.read_timeout = before
      end
    end
  end
end
