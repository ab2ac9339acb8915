# frozen_string_literal: true

module Serverlock
  # A lock's request, checked before anything is sent.
  # @private
  class Request
    TEN_YEARS_MS = 315_360_000_000
    LONGEST_KEY = 4096
    MOST_KEYS = 1024

    attr_reader :keys, :name, :lease_ms, :lease, :wait, :details, :recover, :session, :replicas, :fsync,
                :replicas_within_ms, :at_least, :max_hold, :on_lost, :interrupt, :reentrant, :takes_result

    # `takes_result`: the holder's result may end the attempt.
    def initialize(keys, several: false, lease: nil, wait: 0, owner: :host_and_pid, details: false, recover: false, session: false,
                   shared: false, limit: nil, replicas: nil, fsync: false, replicas_within: 1, at_least: nil,
                   max_hold: nil, on_lost: nil, interrupt: false, reentrant: false, takes_result: false)
      @keys = several ? Request.keys_of(keys) : [Request.key_of(keys, "key")]
      @name = @keys.join(" ").freeze
      @lease_ms = milliseconds("lease", lease, 1)
      @lease = @lease_ms / 1000.0
      @wait = seconds("wait", wait)
      @owner = owner && owner_of(owner)
      @replicas = count("replicas", replicas, 1, 1000)
      @limit = count("limit", limit, 1, 4096)
      @replicas_within_ms = milliseconds("replicas_within", replicas_within, 1)
      @at_least = at_least && seconds("at_least", at_least)
      @max_hold = max_hold && seconds("max_hold", max_hold)
      @details = flag("details", details) || recover
      @recover = flag("recover", recover)
      @session = flag("session", session)
      @shared = flag("shared", shared)
      @fsync = flag("fsync", fsync)
      @interrupt = flag("interrupt", interrupt)
      @reentrant = flag("reentrant", reentrant)
      @on_lost = on_lost
      bad("on_lost", "cannot be called") unless on_lost.nil? || on_lost.respond_to?(:call)
      @takes_result = takes_result
      bad("wait", "is less than 1 ms: #{wait.inspect} s") if takes_result && @wait < 0.001
      bad("wait", "and recover exclude each other") if recover && @wait.positive?
      @target = Keys.new(@keys, several:, alone: !@shared && @limit.nil?)
      @share = [*("SHARED" if @shared), *(["LIMIT", @limit] if @limit)]
    end

    # The same request with another wait.
    def waiting(seconds)
      copy = dup
      copy.wait = seconds
      copy
    end

    # Whether a hold of the other is one of this: the same keys, in any order, and the same kind.
    def same_lock?(other)
      share == other.share && keys.sort == other.keys.sort
    end

    def several?
      @target.several?
    end

    # Whether the script has a queue for it, with messages.
    def queue?
      !several? && !@target.queues.nil?
    end

    # Whether only the module can grant this lock.
    def needs_module?
      @session || !@target.by_script?
    end

    # Whether the attempt needs a dedicated connection.
    def dedicated?
      @session || @fsync || !@replicas.nil?
    end

    # The ACQUIRE of an attempt. `wait`: milliseconds. `alone`: the script skips the queue where it can.
    def acquire(id, wait: nil, channel: nil, alone: false)
      arguments = ["PX", @lease_ms, "ID", id, *named_owner, *("SESSION" if @session)]
      arguments << "DETAILS" if @details && !@recover && !several?
      arguments.concat(@share)
      result = @takes_result && wait ? ["RESULT"] : []
      Command.new(@target, @recover ? "recover" : "acquire", arguments, wait:, channel:, needs_module: @session, alone:, result:)
    end

    # A copy of a RECOVER after a lost reply: a second RECOVER would not find its own lock expired.
    def again(id)
      return acquire(id) unless @recover

      command("acquire", ["PX", @lease_ms, "ID", id, *named_owner, "DETAILS"])
    end

    def info
      command("info", [])
    end

    # Ends an attempt, or the lock that it has.
    def cancel(id, channel)
      command("cancel", ["ID", id, "NOTIFY", channel, *@share])
    end

    # Gets the attempt's lock, or else a lock that expires on its own.
    def found(id)
      command("acquire", ["PX", 1, "ID", id, *@share])
    end

    def extend(token, lease_ms)
      command("extend", [token, "PX", lease_ms])
    end

    # With a result, the attempts that wait for one get it.
    def release(token, result = nil)
      return command("release", [token]) unless result

      Command.new(@target, "release", [token], result: ["RESULT", result], stores: StoredResult.command(self, token, result))
    end

    # One check for each key.
    def checks(token)
      @target.each_one.map { |keys| Command.new(keys, "check", [token]) }
    end

    # Checks a new lease for a hold. Returns milliseconds.
    def lease_of(lease)
      milliseconds("lease", lease, 1)
    end

    # Checks a duration. Returns seconds.
    def seconds_of(argument, value, least)
      milliseconds(argument, value, (least * 1000).to_i) / 1000.0
    end

    def bad(argument, why)
      raise BadArgument.new("lock #{@name.inspect}: #{argument} #{why}", key: @name)
    end

    # The fields of a reply to LOCK.INFO.
    def self.fields(reply)
      reply.is_a?(Array) ? reply.each_slice(2).to_h : reply
    end

    def self.key_of(key, argument)
      raise BadArgument, "#{argument} is not a String: #{key.inspect}" unless key.is_a?(String)
      return key.b.freeze if key.bytesize <= LONGEST_KEY

      raise BadArgument.new("key is longer than #{LONGEST_KEY} bytes: #{key[0, 40].inspect}...", key:)
    end

    def self.keys_of(keys)
      raise BadArgument, "keys is not an Array of 1 to #{MOST_KEYS} keys" unless
        keys.is_a?(Array) && keys.size.between?(1, MOST_KEYS)

      keys = keys.map { |key| key_of(key, "keys") }
      twice = keys.tally.find { |_, count| count > 1 }
      raise BadArgument.new("key #{twice[0].inspect} is given twice", key: twice[0]) if twice

      keys
    end

    protected

    attr_reader :share
    attr_writer :wait

    private

    def command(name, arguments)
      Command.new(@target, name, arguments, needs_module: @session)
    end

    def milliseconds(argument, value, least)
      bad(argument, "is not a number of seconds: #{value.inspect}") unless number?(value)
      ms = (value * 1000).round
      bad(argument, "is not between #{least} ms and 10 years: #{value.inspect} s") unless ms.between?(least, TEN_YEARS_MS)
      ms
    end

    def seconds(argument, value)
      bad(argument, "is not a number of seconds: #{value.inspect}") unless number?(value)
      bad(argument, "is not between 0 and 10 years: #{value.inspect} s") unless value >= 0 && value * 1000 <= TEN_YEARS_MS
      value.to_f
    end

    # ActiveSupport's durations are numbers to `is_a?`, but not to `===`.
    def number?(value)
      value.is_a?(Integer) || (value.is_a?(Numeric) && value.real? && value.to_f.finite?)
    end

    def named_owner
      return if @owner.nil?

      ["OWNER", @owner == :host_and_pid ? Owner.host_and_pid : @owner]
    end

    def owner_of(owner)
      return owner if owner == :host_and_pid

      bad("owner", "is not 1 to 128 visible ASCII characters without a space: #{owner.inspect}") unless
        owner.is_a?(String) && owner.match?(/\A[!-~]{1,128}\z/)
      owner
    end

    def count(argument, value, least, most)
      return if value.nil?

      bad(argument, "is not a whole number between #{least} and #{most}: #{value.inspect}") unless
        value.is_a?(Integer) && value.between?(least, most)
      value
    end

    def flag(argument, value)
      bad(argument, "is not true or false: #{value.inspect}") unless [true, false].include?(value)
      value
    end
  end
end
