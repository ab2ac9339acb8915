# frozen_string_literal: true

module Serverlock
  module Testing
    # The state of a {Server}: its keys, and the rules by which they are granted. Those of the module, for what this
    # package uses.
    # @private
    class Memory
      include Locking

      MARGIN = Clock.ticks(1)
      CLAIM = Clock.ticks(2)
      PLACE = Clock.ticks(10)
      UNBLOCKED = "UNBLOCKED the attempt waits elsewhere"

      attr_reader :clock

      def initialize
        @clock = Clock.new(self)
        @mutex = Mutex.new
        @keys = {}
        @channels = {}
        @last_token = 0
      end

      # Runs the block while nothing else happens.
      def exclusively(&)
        locked(&)
      end

      # For the clock: when something next falls due.
      def next_at
        locked { @keys.values.filter_map { |key| key.next_at(now) }.min }
      end

      # For the clock: carries out what is due.
      def run
        locked { @keys.each_value { |key| pass_time(key) } }
      end

      # `connection.deliver` gets the messages.
      def subscribe(channel, connection)
        locked { @channels[channel] = connection }
      end

      # Ends a connection: its waits, and the locks that belong to it.
      def disconnect(connection)
        locked do
          @channels.delete_if { |_, other| other.equal?(connection) }
          @keys.each_value do |key|
            key.waiters.each { |waiter| leave(waiter, ConnectionLost.new("the connection was closed")) if left_with?(waiter, connection) }
            key.held(now).each { |grant| end_session(grant) if grant.ask.session && grant.ask.connection.equal?(connection) }
          end
        end
      end

      # The rest is called with the mutex locked.

      def now
        @clock.ticks
      end

      def key(name)
        key = @keys[name] ||= Key.new(name)
        key.tidy(now)
        key
      end

      def grant(ask, claim_by: nil)
        @last_token = [@clock.micros, @last_token + 1].max
        grant = Grant.new(@last_token, ask, now, nil, nil, claim_by)
        lease(grant, ask) unless claim_by
        befores = ask.keys.filter_map { |name| key(name).take(grant, now) }
        grant.predecessor = befores[0]
        grant
      end

      def lease(grant, ask)
        ends = now + ask.lease
        grant.lease_ends = [grant.lease_ends || ends, ends].max
        grant.free_at = grant.lease_ends + MARGIN
      end

      # Ends a grant on the key, and serves the queue.
      def release(key, grant)
        key.holders.delete_if { |other| other.equal?(grant) }
        serve(key)
      end

      # The same for all of a grant's keys.
      def end_grant(names, token)
        names.map { |name| key(name) }.each do |key|
          grant = key.grant_of(token)
          release(key, grant) if grant
        end
      end

      # Adds an attempt to the queue of the first key that it cannot have, or to that of its last place.
      def enqueue(ask, changed = nil)
        old = place_of(ask)
        place = old ? old.place : blocker(ask) || key(ask.keys[0])
        waiter = Waiter.new(ask, place, old ? old.since : now, now + ask.wait, changed)
        finish(old, ReplyError.new(UNBLOCKED)) if old&.waits?
        place.queue.insert(place.queue.index { |other| other.equal?(old) } || -1, waiter)
        place.queue.delete_if { |other| other.equal?(old) }
        waiter
      end

      # Blocks until the attempt has its reply or its wait ends.
      def await(waiter)
        while waiter.reply.nil? && now < waiter.ends
          Thread.handle_interrupt(ON_BLOCKING) { waiter.changed.wait(@mutex, Clock.seconds(waiter.ends - now)) }
        end
        reply = waiter.reply&.first
        raise reply if reply.is_a?(Exception)

        reply
      ensure
        leave(waiter) unless waiter.reply
      end

      # An attempt's entry in a queue, even while it is away.
      def place_of(ask)
        ask.keys.filter_map { |name| key(name).waiter_of(ask.id) }.first
      end

      # Whether nobody has to be waited for.
      def grantable?(ask)
        waiter = place_of(ask)
        blocker(ask).nil? && ask.keys.none? { |name| key(name).overtaken?(waiter) }
      end

      def forget(waiter)
        waiter.place.queue.delete_if { |other| other.equal?(waiter) }
      end

      # Grants the key to the first waiters while it can be.
      def serve(key)
        key.tidy(now)
        key.drop_unclaimed(now)
        key.waiters.each do |waiter|
          blocker = blocker(waiter.ask)
          break if blocker.equal?(key)

          forget(waiter)
          blocker ? move(waiter, blocker) : hand_over(waiter)
        end
      end

      # Ends a wait: with a reply if it blocks, otherwise with a message.
      def end_wait(waiter, word, reply = nil)
        forget(waiter)
        waiter.ask.channel ? publish(waiter, word) : finish(waiter, reply)
      end

      # Ends the attempts in the key's queue that take a result. Those that do not block, or are away, ask for it.
      def answer(key, value)
        key.queue.select { |waiter| waiter.ask.takes_result }.each do |waiter|
          result = Result.new(value, now + CLAIM)
          key.results[waiter.ask.id] = result if waiter.ask.channel || !waiter.waits?
          waiter.waits? ? end_wait(waiter, "result", result) : forget(waiter)
        end
      end

      # Ends a wait, but keeps its place for a while.
      def leave(waiter, reply = nil)
        waiter.away_until = now + PLACE
        finish(waiter, reply)
      end

      private

      # The key because of which the attempt has to wait.
      def blocker(ask)
        ask.keys.map { |name| key(name) }.find { |key| !key.admits?(ask, now) }
      end

      def move(waiter, blocker)
        waiter.place = blocker
        blocker.queue << waiter
      end

      def hand_over(waiter)
        if waiter.ask.channel
          grant(waiter.ask, claim_by: now + CLAIM)
          publish(waiter, "granted")
        else
          finish(waiter, grant(waiter.ask))
        end
      end

      def finish(waiter, reply)
        waiter.reply = [reply]
        waiter.changed&.signal
      end

      def publish(waiter, word)
        @channels[waiter.ask.channel]&.deliver("#{word} #{waiter.ask.id} ".b + waiter.ask.keys[0])
      end

      def pass_time(key)
        key.waiters.each { |waiter| end_wait(waiter, "timeout") if waiter.ask.channel && waiter.ends <= now }
        serve(key)
      end

      # Whether the attempt's wait ends with the connection.
      def left_with?(waiter, connection)
        waiter.ask.connection.equal?(connection) && (waiter.ask.channel.nil? || waiter.ask.session)
      end

      def end_session(grant)
        grant.lease_ends = [grant.lease_ends, now].min
        grant.free_at = [grant.free_at, now + MARGIN].min
      end
    end
  end
end
