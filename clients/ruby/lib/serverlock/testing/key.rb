# frozen_string_literal: true

module Serverlock
  module Testing
    # What a command asks for. Times are ticks of the {Clock}. `most`: how many holders there may be, this one included;
    # `shares`: whether it may have the lock alongside others.
    # @private
    Ask = Struct.new(:keys, :lease, :wait, :id, :owner, :most, :shares, :channel, :session, :connection, :details, :recovers,
                     :takes_result, keyword_init: true)

    # A holder's result for an attempt. `until`: when an attempt that does not block must have asked for it.
    # @private
    Result = Struct.new(:value, :until)

    # A grant, on each of its keys. It keeps others out until `free_at`. Until it is claimed, which has to happen by
    # `claim_by`, it has no lease.
    # @private
    Grant = Struct.new(:token, :ask, :granted_at, :lease_ends, :free_at, :claim_by, :predecessor) do
      def last?(now)
        now < (claim_by || free_at)
      end

      def expire(now)
        self.lease_ends = self.free_at = now
        self.claim_by &&= now
      end
    end

    # An attempt in the queue of one of its keys. `ends`: when its wait ends. One that blocks has `changed`, and `reply`
    # once that is known. If it leaves, its place is kept for a while (`away_until`).
    # @private
    Waiter = Struct.new(:ask, :place, :since, :ends, :changed, :reply, :away_until) do
      def waits?
        away_until.nil?
      end
    end

    # A key of the server: its holders, some of which may have expired, and its queue.
    # @private
    class Key
      # How long an expired lock is still reported to a successor.
      RETENTION = Clock.ticks(60)

      attr_reader :name, :holders, :queue, :results
      attr_accessor :refusal

      def initialize(name)
        @name = name
        @holders = []
        @queue = []
        @results = {} # by the attempt's ID
        @refusal = nil
      end

      # Forgets what has ended.
      def tidy(now)
        @holders.delete_if { |grant| grant.claim_by.nil? && now >= grant.free_at + RETENTION }
        @queue.delete_if { |waiter| waiter.away_until&.<=(now) }
        @results.delete_if { |_, result| result.until <= now }
      end

      def held(now)
        @holders.select { |grant| grant.last?(now) }
      end

      def expired(now)
        @holders.reject { |grant| grant.claim_by || grant.last?(now) }
      end

      # Forgets the grants that were not claimed in time.
      def drop_unclaimed(now)
        @holders.delete_if { |grant| grant.claim_by && !grant.last?(now) }
      end

      def waiters
        @queue.select(&:waits?)
      end

      # Whether others have waited longer.
      def overtaken?(waiter)
        waiters.take_while { |other| !other.equal?(waiter) }.any?
      end

      # Whether it can be granted.
      def admits?(ask, now)
        held = held(now)
        held.size < ask.most && held.all? { |grant| grant.ask.shares }
      end

      # Adds a holder. Returns the one whose place it takes, because its lease expired.
      def take(grant, now)
        before = expired(now).min_by(&:free_at) if @holders.size >= grant.ask.most
        grant.ask.shares ? @holders.delete_if { |other| other.equal?(before) } : @holders.clear
        @holders << grant
        before
      end

      def grant_of(token)
        @holders.find { |grant| grant.token == token }
      end

      def grant_to(id, now)
        held(now).find { |grant| grant.ask.id == id } if id
      end

      def waiter_of(id)
        @queue.find { |waiter| waiter.ask.id == id } if id
      end

      # When something next happens on its own.
      def next_at(now)
        waits = waiters
        held = held(now)
        [*held.filter_map(&:claim_by), *waits.select { |waiter| waiter.ask.channel }.map(&:ends),
         *(held.map(&:free_at) if waits.any?)].min
      end
    end
  end
end
