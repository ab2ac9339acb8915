# frozen_string_literal: true

module Serverlock
  # Sends commands: LOCK.* where the server has the module, else the portable script.
  # @private
  class Server
    ASK_EVERY = 5.0
    # How many seconds locks do without their queues after the server denied the user access to one.
    ALONE_FOR = 60.0

    # The block is called when the module is found after it was missing.
    def initialize(client, logger, portable:, warn:, &found)
      @client = client
      @logger = logger
      @portable = portable
      @warn = warn
      @found = found
      @has_module = nil
      @alone_until = 0.0
      @asked_at = 0.0
      @retention = nil
    end

    # Whether the portable script may replace the module.
    def portable?
      @portable
    end

    # Whether the server had the module when it was last used.
    def module?
      @has_module == true
    end

    def module_missing?
      @has_module == false
    end

    # Whether the user may not touch the queues.
    def alone?
      @client.clock.now < @alone_until
    end

    # Runs a command: over the connection with the timeout, or over the application's client. Calls the block right
    # before the command is sent, because it may wait a long time for its turn on the connection.
    def call(command, connection: nil, timeout: nil, &sending)
      return script(command, connection, timeout, &sending) if by_script?(command)

      begin
        reply = send_over(connection, command.words, timeout, &sending)
        found!
        reply
      rescue ReplyError => e
        return call(command.plain, connection:, timeout:, &sending) if e.result_too_long?
        raise unless e.unknown_command?

        missing!
        raise Unavailable, missing(command) if command.needs_module? || !@portable

        script(command, connection, timeout, &sending)
      end
    end

    # The words of a command in a pipeline.
    def translate(command)
      return command.words unless by_script?(command)

      ["evalsha", Portable::SHA, *command.script(retention, alone?)]
    end

    # The reply to the words that `translate` returned, or an error.
    def settle(reply, words, command, connection, timeout)
      is_script = words[0] == "evalsha"
      found! unless is_script || reply.is_a?(Exception)
      return reply unless reply.is_a?(ReplyError)

      missing! if reply.unknown_command? && !is_script
      again = is_script ? reply.reply_code == "NOSCRIPT" || outside?(reply, command) : reply.unknown_command?
      again ? call(command, connection:, timeout:) : reply
    rescue ReplyError, ConnectionLost, Unavailable => e
      e
    end

    def fenced(keys, token, words)
      if @has_module != false
        begin
          # The script is short enough for EVAL, so the user does not need permission for EVALSHA.
          return @client.call(["eval", Portable::FENCED, keys.size, *keys, token, *words])
        rescue ReplyError => e
          raise unless e.message.match?(/unknown (redis )?command/i)

          missing!
        end
      end
      evaluate(Portable::FENCED_PORTABLE, keys, [token, *words])
    end

    def missing!
      @asked_at = @client.clock.now
      return if @has_module == false

      first = !@warned
      @has_module = false
      @warned = true
      return unless first && @warn

      if @portable
        @logger.warn("serverlock: the server does not have the lock module: locks work through a script, in order " \
                     "of arrival. Sessions, blocking waits and deadlock detection need the module. " \
                     "`warn_without_module: false` turns this warning off")
      else
        @logger.warn("serverlock: the server does not have the lock module. `warn_without_module: false` turns this warning off")
      end
    end

    private

    def by_script?(command)
      @has_module == false && !command.needs_module? && !ask?(command)
    end

    # One attempt at a time probes for the module.
    def ask?(command)
      return false unless command.acquires? && @client.clock.now - @asked_at >= ASK_EVERY

      @asked_at = @client.clock.now
      true
    end

    def found!
      is_new = @has_module == false
      @has_module = true
      @found&.call if is_new
    end

    def missing(command)
      why = "the server does not have the lock module, which this needs"
      command.keys.by_script? ? why : "#{why}: the key has a brace but no hash tag"
    end

    # Whether an error concerns only the queue: the user may not touch it, or it is moving to another node.
    def outside?(error, command)
      command.alone? && %w[NOPERM TRYAGAIN].include?(error.reply_code)
    end

    def script(command, connection, timeout, &)
      store(command.stores, connection, timeout) if command.stores
      is_alone = alone?
      evalsha(command, is_alone, connection, timeout, &)
    rescue ReplyError => e
      raise if is_alone || !outside?(e, command)

      reply = evalsha(command, true, connection, timeout, &)
      @alone_until = @client.clock.now + ALONE_FOR if e.reply_code == "NOPERM"
      reply
    end

    # If a result cannot be stored, each caller computes its own.
    def store(words, connection, timeout)
      send_over(connection, words, timeout)
    rescue ReplyError
      nil
    end

    def evalsha(command, alone, connection, timeout, &)
      rest = command.script(retention(connection, timeout), alone)
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

    # Under a volatile-* policy, keys with an expiry are evicted first.
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
