# frozen_string_literal: true

module Serverlock
  # A lock's keys, and the queues where attempts wait for them without the module.
  # @private
  class Keys
    BRACE = /[{}]/n
    HASH_TAG = /\A[^{]*\{[^}]+\}/n

    attr_reader :locks, :queues

    # `several`: all or nothing. `alone`: whether a command may skip the queue, because the lock has one holder.
    def initialize(locks, several: false, alone: true)
      @locks = locks
      @several = several
      @alone = alone && !several
      queues = locks.map { |lock| Keys.queue_of(lock) }
      @queues = queues unless queues.include?(nil)
    end

    # A lock's queue, in the same slot; nil if it has none.
    def self.queue_of(lock)
      beside(lock, "queue")
    end

    # Where a holder stores its result without the module; nil if this name has no such key.
    def self.result_of(lock)
      beside(lock, "result")
    end

    def self.beside(lock, what)
      lock = lock.b
      return "#{lock}:#{what}:{#{lock}}" unless lock.match?(BRACE)

      "#{lock}:#{what}" if lock.match?(HASH_TAG)
    end
    private_class_method :beside

    def several?
      @several
    end

    def alone?
      @alone
    end

    # Whether the script can do what the module does.
    def by_script?
      @alone || !@queues.nil?
    end

    # The keys of each lock separately.
    def each_one
      @each_one ||= @several ? @locks.map { |lock| Keys.new([lock]) } : [self]
    end
  end

  # A command for a lock, in two forms: LOCK.*, and a function of lock.lua. It is named after LOCK.* for one lock.
  # @private
  class Command
    attr_reader :keys, :stores

    # `wait`: milliseconds in the queue. With a channel the reply comes at once; without one the command blocks.
    # `result`: words that only LOCK.* has; `stores`: a command that the script needs first instead of them, if any.
    def initialize(keys, name, arguments, wait: nil, channel: nil, needs_module: false, alone: false, result: [], stores: nil)
      @keys = keys
      @result = result
      @stores = stores
      @name = name
      @arguments = arguments
      @rest = [*(["WAIT", wait] if wait), *(["NOTIFY", channel] if channel)]
      @blocks = wait && !channel
      @needs_module = needs_module || !keys.by_script?
      @alone = alone
    end

    # Whether only the module can run the command.
    def needs_module?
      @needs_module || @blocks
    end

    # The same release without its result.
    def plain
      Command.new(@keys, @name, @arguments, needs_module: @needs_module)
    end

    # Whether it is a copy of an attempt, which may probe for the module.
    def acquires?
      @name == "acquire"
    end

    # Whether the script can run the command without the queue.
    def alone?
      @keys.alone? && !@keys.queues.nil? && @name != "cancel"
    end

    # The words of LOCK.*.
    def words
      own = @name == "cancel" ? [@arguments[1]] : @arguments
      return ["lock.#{@name}", @keys.locks[0], *own, *@rest, *@result] unless @keys.several?

      ["lock.m#{@name}", @keys.locks.size, *@keys.locks, *@arguments, *@rest]
    end

    # The arguments of EVALSHA and EVAL. `alone`: without the queue.
    def script(retention, alone)
      alone ||= @alone
      return scripted([@keys.locks[0]], "lock_#{@name}", retention) if @keys.queues.nil? || (alone && alone?)

      suffix = "_all" if @keys.several?
      scripted([*@keys.locks, *@keys.queues], "lock_#{@name}#{suffix}", retention, @rest)
    end

    private

    def scripted(keys, function, retention, rest = [])
      [keys.size, *keys, function, Portable::MARGIN, retention, *@arguments, *rest]
    end
  end
end
