# frozen_string_literal: true

module Serverlock
  # Sends commands: LOCK.* where the server has the module, else the portable script.
  # @private
  class Server
    ASK_EVERY = 5.0

    def initialize(client, logger, portable:, warn:)
      @client = client
      @logger = logger
      @portable = portable
      @warn = warn
      @has_module = nil
      @asked_at = 0.0
      @retention = nil
    end

    # Whether the portable script may stand in.
    def portable?
      @portable
    end

    def module_missing?
      @has_module == false
    end

    # Runs a command: over a connection with that timeout, or over the application's client. Calls the block right
    # before the command is sent: it may wait long for its turn on the connection.
    def call(command, needs_module: false, connection: nil, timeout: nil, &sending)
      return script(command, connection, timeout, &sending) if @has_module == false && !needs_module && !ask?(command)

      begin
        reply = send_over(connection, command, timeout, &sending)
        @has_module = true
        reply
      rescue ReplyError => e
        raise unless e.unknown_command?

        missing!
        raise Unavailable, "the server does not have the lock module, which this needs" if needs_module || !@portable

        script(command, connection, timeout, &sending)
      end
    end

    # The form of a hold's command in a pipeline.
    def translate(command, needs_module)
      return command if @has_module != false || needs_module

      ["evalsha", Portable::SHA, *Portable.call(command, retention)]
    end

    # The reply to what `translate` returned, or an error.
    def settle(reply, command, needs_module, connection, timeout)
      return reply unless reply.is_a?(Exception)

      again = reply.is_a?(ReplyError) && (reply.unknown_command? || reply.reply_code == "NOSCRIPT")
      return reply unless again

      missing! if reply.unknown_command?
      call(command, needs_module:, connection:, timeout:)
    rescue ReplyError, ConnectionLost, Unavailable => e
      e
    end

    def fenced(keys, token, words)
      if @has_module != false
        begin
          # It is short, so a user needs no right to EVALSHA.
          return @client.call(["eval", Portable::FENCED, keys.size, *keys, token, *words])
        rescue ReplyError => e
          raise unless e.message.match?(/unknown (redis )?command/i)

          missing!
        end
      end
      evaluate(Portable::FENCED_PORTABLE, keys, [token, *words])
    end

    def missing!
      @asked_at = Clock.now
      return if @has_module == false

      first = !@warned
      @has_module = false
      @warned = true
      return unless first && @warn

      if @portable
        @logger.warn("serverlock: the server does not have the lock module: locks are polled for, and have one holder. " \
                     "`warn_without_module: false` turns this warning off")
      else
        @logger.warn("serverlock: the server does not have the lock module. `warn_without_module: false` turns this warning off")
      end
    end

    private

    # One attempt at a time asks for the module.
    def ask?(command)
      return false unless command[0] == "lock.acquire" && Clock.now - @asked_at >= ASK_EVERY

      @asked_at = Clock.now
      true
    end

    def script(command, connection, timeout, &)
      rest = Portable.call(command, retention(connection, timeout))
      send_over(connection, ["evalsha", Portable::SHA, *rest], timeout, &)
    rescue ReplyError => e
      raise unless e.reply_code == "NOSCRIPT"

      @retention = nil # perhaps another server
      send_over(connection, ["eval", Portable::TEXT, *rest], timeout, &)
    end

    def evaluate(text, keys, arguments)
      @client.call(["evalsha", Digest::SHA1.hexdigest(text), keys.size, *keys, *arguments])
    rescue ReplyError => e
      raise unless e.reply_code == "NOSCRIPT"

      @client.call(["eval", text, keys.size, *keys, *arguments])
    end

    def send_over(connection, command, timeout, &sending)
      return @client.call(command, &sending) unless connection

      sending&.call
      connection.call(command, timeout)
    end

    # Under a volatile-* policy keys with an expiry are evicted first.
    def retention(connection = nil, timeout = nil)
      @retention ||= begin
        text = send_over(connection, %w[info memory], timeout)
        text[/^maxmemory_policy:(\S+)/, 1]&.start_with?("volatile-") == false ? Portable::RETENTION : -1
      rescue ReplyError => e
        raise if e.again?

        -1
      end
    end
  end
end
