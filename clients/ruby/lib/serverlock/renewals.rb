# frozen_string_literal: true

module Serverlock
  # Sends renewals, and copies of waiting attempts, in batches: over one of the application's connections if one is
  # free, otherwise over its own.
  # @private
  class Renewals
    BATCH = 100
    # In a cluster, a node that does not answer must not hold up the others.
    THREADS_FOR_CLUSTER = 3

    def initialize(engine)
      @engine = engine
      @queue = engine.clock.queue
      @threads = []
    end

    def size
      @queue.size
    end

    def push(holds)
      holds.each { |hold| @queue << hold }
      most = @engine.client.cluster? ? THREADS_FOR_CLUSTER : 1
      @threads << @engine.thread("renewals") { work } while @threads.size < most
    end

    private

    def work
      connection = nil
      loop do
        batch = [@queue.pop]
        batch << @queue.pop until @queue.empty? || batch.size >= BATCH || @engine.client.cluster?
        batch.reject!(&:gone?)
        next if batch.empty?

        begin
          unless @engine.client.borrow { |theirs| renew(batch, theirs) }
            connection ||= @engine.client.calls
            renew(batch, connection)
          end
        rescue StandardError => e
          @engine.say("a renewal failed: #{e.full_message(highlight: false)}") unless e.is_a?(ConnectionLost) || e.is_a?(ReplyError)
          batch.each(&:not_renewed)
          connection&.close
          connection = nil
        end
      end
    end

    def renew(batch, connection)
      server = @engine.server
      patience = [@engine.patience, *batch.map { |hold| [hold.lease_s / 6, 0.1].max }].min
      # A hold may have ended in the meantime.
      sent = batch.filter_map { |item| (command = item.renewal) && [item, command] }
      return if sent.empty?

      batch, commands = sent.transpose
      words = commands.map { |command| server.translate(command) }
      replies = connection.pipeline(words, patience)
      batch.each_with_index do |hold, at|
        hold.renewed(server.settle(replies[at], words[at], commands[at], connection, patience))
      end
    end
  end
end
