# frozen_string_literal: true

require_relative "../serverlock"
require_relative "testing/clock"
require_relative "testing/key"
require_relative "testing/memory"
require_relative "testing/arguments"
require_relative "testing/commands"
require_relative "testing/wire"

module Serverlock
  # Locks without a server, for applications' tests. Only tests load it: `require "serverlock/testing"`.
  module Testing
    # An in-memory lock server. Its time stands still until the test moves its {#clock}.
    #
    # It has LOCK.* as far as this package uses them, with the module's rules and default settings: the margin is 1 s.
    # It has neither replicas nor disks, so `replicas` and `fsync` fail as {Unavailable}, and so does a command in
    # {Held#fenced} if the lock is held. It does not detect deadlocks.
    #
    # @example
    #   server = Serverlock::Testing::Server.new
    #   report = Report.new(server.locks)
    #   server.clock.advance(30)
    class Server
      # The error replies of a refused key.
      REFUSALS = { unavailable: "CLOCK the test refuses this key", denied: "NOPERM the test refuses this key" }.freeze
      private_constant :REFUSALS

      # @return [Clock]
      attr_reader :clock

      def initialize
        @memory = Memory.new
        @clock = @memory.clock
        @wire = Wire.new(@memory)
      end

      # A manager, for the code under test. Several managers of one server behave like several processes.
      # @param options those of {Locks}
      # @return [Locks]
      def locks(**options)
        Locks.new(Client.new(self, library: @wire, clock: @clock), **options)
      end

      # The leases of the key's holders end now, on the server: the next waiter, or {Locks#recover}, gets the lock. A
      # holder finds out on its next renewal, a third of its lease later, or from `verify`, `extend` or `release`.
      # @param key [String]
      # @return [void]
      def expire(key)
        change(key) do |it|
          it.held(@memory.now).each { |grant| grant.expire(@memory.now) }
          @memory.serve(it)
        end
      end

      # The hold is lost: its holder is notified at once, and the next waiter gets the lock.
      # @param held [Held]
      # @return [void]
      def lose(held)
        held.hold.lose("the test says so")
        @memory.exclusively { @memory.end_grant(held.keys, held.token) }
        @clock.settle
      end

      # Until {#allow}, attempts for the key, including those that are waiting, fail at once. Holders keep the lock
      # until their lease ends, because renewals fail.
      # @param key [String]
      # @param error [Symbol] :unavailable or :denied
      # @return [void]
      def refuse(key, error: :unavailable)
        refusal = REFUSALS[error] or raise BadArgument, "error is not one of #{REFUSALS.keys.inspect}: #{error.inspect}"
        change(key) do |it|
          it.refusal = refusal
          it.waiters.each { |waiter| @memory.end_wait(waiter, "unblocked", ReplyError.new(refusal)) }
        end
      end

      # Ends {#refuse}.
      # @param key [String]
      # @return [void]
      def allow(key)
        change(key) { |it| it.refusal = nil }
      end

      # How many attempts are waiting in the key's queue. A test asks before it moves the clock, so that they are
      # waiting by then.
      # @param key [String]
      # @return [Integer]
      def waiting(key)
        @memory.exclusively { @memory.key(key.b).waiters.size }
      end

      # Sends a command to the server, for example LOCK.INFO.
      # @private
      def call(*words)
        @wire.call(self, words)
      end

      # @return [String]
      def inspect
        "#<Serverlock::Testing::Server at #{@clock.now} s>"
      end

      private

      # Changes a key, and waits until what that caused is done.
      def change(key)
        @memory.exclusively { yield @memory.key(Request.key_of(key, "key")) }
        @clock.settle
        nil
      end
    end
  end
end
