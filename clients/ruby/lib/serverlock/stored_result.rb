# frozen_string_literal: true

module Serverlock
  # The results of a lock without the module. A holder stores its result at a key of its own before it releases the
  # lock. Those that wait get the lock in turn, and the result with it if it was stored while they waited. If that
  # fails, each of them computes.
  # @private
  class StoredResult
    LONGEST = 65_536

    # The command that stores a result, or nil.
    def self.command(request, token, result)
      key = Keys.result_of(request.keys[0])
      ["set", key, "#{token} ".b << result, "px", request.lease_ms] if key && result.bytesize <= LONGEST
    end

    def initialize(engine, request)
      @engine = engine
      @key = Keys.result_of(request.keys[0])
      @before = nil
    end

    # Notes what is stored when the attempt begins to wait, once.
    def note
      @before ||= read if @key
      nil
    end

    # The result that was stored since then, or nil.
    def newer
      return unless @before

      token, result = read
      result if @before[0] != :unknown && token != :unknown && token.to_i > @before[0].to_i
    end

    private

    # The token and the result: both nil if there is none, :unknown if it cannot be read.
    def read
      token, result = @engine.client.call(["get", @key])&.b&.split(" ", 2)
      result ? [token, result] : [nil, nil]
    rescue ReplyError, ConnectionLost
      [:unknown, nil]
    end
  end
end
