# frozen_string_literal: true

module Serverlock
  module Testing
    # The commands of a {Server}: LOCK.*, TIME, PING, WAIT, and the script of {Held#fenced}, but not the command in it.
    # @private
    class Commands
      LOCK = /\Alock\.(m)?(acquire|recover|extend|release|check|cancel|info)\z/
      LONGEST_RESULT = 65_536

      def initialize(memory)
        @memory = memory
      end

      # Carries out a command. An ACQUIRE that waits blocks its caller. @raise [ReplyError, ConnectionLost]
      def call(words, connection = nil)
        @memory.exclusively do
          name = words[0].downcase
          next other(name, words) unless (match = LOCK.match(name))

          keys, rest = Arguments.keys(words.drop(1), match[1])
          %w[acquire recover].include?(match[2]) ? acquire(keys, rest, connection, match[2] == "recover") : send(match[2], keys, *rest)
        end
      end

      private

      def now
        @memory.now
      end

      def key(name)
        @memory.key(name)
      end

      def other(name, words)
        case name
        when "ping" then "PONG"
        when "time" then @memory.clock.micros.divmod(1_000_000).map(&:to_s)
        when "wait" then 0
        when "eval" then fenced(words[3, words[2]], words[3 + words[2]], words[4 + words[2]])
        else raise ReplyError, "ERR unknown command '#{name}': this server is in memory"
        end
      end

      def fenced(keys, token, name)
        raise ReplyError, "LOST the lock is not held" if keys.any? { |it| check([it], token).zero? }

        # ERR would mean that the server lacks the module.
        raise ReplyError, "MISCONF a server in memory has no #{name}"
      end

      def acquire(keys, words, connection, recovers)
        ask = Arguments.ask(keys, words, connection, recovers)
        allowed(keys)
        result = key(keys[0]).results[ask.id] if ask.takes_result
        grant = result || again(ask) || granted(ask)
        return reply(grant, ask) if grant
        return give_up(ask) unless ask.wait.positive? && !recovers
        return reply(@memory.await(@memory.enqueue(ask, @memory.clock.condition)), ask) unless ask.channel

        @memory.enqueue(ask)
        "WAITING"
      end

      def allowed(keys)
        refusal = keys.filter_map { |name| key(name).refusal }.first
        raise ReplyError, refusal if refusal
      end

      # The grant that the attempt has already. Claims it.
      def again(ask)
        grants = ask.keys.map { |name| key(name).grant_to(ask.id, now) }
        return if grants.include?(nil) || grants.uniq(&:token).size > 1

        grant = grants[0]
        grant.claim_by = nil
        grant.ask = ask
        @memory.lease(grant, ask)
        grant
      end

      def granted(ask)
        return unless ask.recovers ? recoverable?(key(ask.keys[0])) : @memory.grantable?(ask)

        waiter = @memory.place_of(ask)
        @memory.forget(waiter) if waiter
        @memory.grant(ask)
      end

      def recoverable?(key)
        key.held(now).empty? && key.expired(now).any? && key.waiters.empty?
      end

      # A copy without a wait ends the attempt's wait.
      def give_up(ask)
        waiter = @memory.place_of(ask)
        @memory.forget(waiter) if waiter
        nil
      end

      def reply(grant, ask)
        return [grant.value] if grant.is_a?(Result)
        return grant&.token unless grant && ask.details

        before = grant.predecessor
        [grant.token, before && milliseconds(grant.granted_at - before.free_at), before&.token, before&.ask&.owner]
      end

      def extend(keys, token, *words)
        allowed(keys)
        grants = keys.map { |name| key(name).grant_of(token) }
        return 0 unless grants.all? { |grant| grant && grant.claim_by.nil? && grant.last?(now) }

        lease = Arguments.ask(keys, words, nil, false).lease
        grants.uniq(&:token).each do |grant|
          grant.lease_ends = now
          @memory.lease(grant, Ask.new(lease:))
        end
        1
      end

      # For several keys: on how many of them the grant was in force.
      def release(keys, token, _word = nil, value = nil)
        raise ReplyError, "ERR result is longer than #{LONGEST_RESULT} bytes, the limit lock.result-max" if
          value && value.bytesize > LONGEST_RESULT

        replies = keys.map { |name| release_one(key(name), token, value) }
        replies.size == 1 ? replies[0] : replies.count { |reply| !reply.zero? }
      end

      def release_one(key, token, result)
        grant = key.grant_of(token)
        return 0 unless grant

        in_time = grant.last?(now)
        @memory.answer(key, result) if in_time && result
        @memory.release(key, grant)
        in_time ? 1 : -1
      end

      def check(keys, token)
        grant = key(keys[0]).grant_of(token)
        grant && grant.claim_by.nil? ? [milliseconds(grant.lease_ends - now), 0].max : 0
      end

      def cancel(keys, id)
        key = key(keys[0])
        grant = key.grant_to(id, now)
        waiter = key.waiter_of(id)
        @memory.end_wait(waiter, "cancelled") if waiter
        @memory.end_grant(grant.ask.keys, grant.token) if grant
        waiter || grant ? 1 : 0
      end

      def info(keys)
        key = key(keys[0])
        held = key.held(now)
        fields = held.any? ? of_grant("held", held.max_by { |it| it.claim_by || it.free_at }) : expired(key)
        waiters = key.waiters
        fields.merge("waiters" => waiters.size, "oldest-wait-ms" => waiters[0] && milliseconds(now - waiters[0].since)).to_a.flatten(1)
      end

      def expired(key)
        last = key.expired(now).max_by(&:free_at)
        last ? of_grant("expired", last) : { "state" => "free" }
      end

      def of_grant(state, grant)
        left = ((grant.claim_by || grant.free_at) - now).clamp(0..)
        { "state" => state, "token" => grant.token, "id" => grant.ask.id&.to_s, "owner" => grant.ask.owner,
          "held-ms" => milliseconds(now - grant.granted_at),
          "lease-ms" => grant.claim_by ? 0 : [milliseconds(grant.lease_ends - now), 0].max,
          "free-in-ms" => (Clock.seconds(left) * 1000).ceil,
          "overdue-ms" => state == "expired" ? milliseconds(now - grant.free_at) : nil }
      end

      def milliseconds(ticks)
        (Clock.seconds(ticks) * 1000).floor
      end
    end
  end
end
