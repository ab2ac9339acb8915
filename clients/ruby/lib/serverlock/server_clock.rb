# frozen_string_literal: true

module Serverlock
  # What is known about a server's clock. `offset`: the server's time minus the local clock; `doubt`: by how much that
  # may be wrong; `asked`: local time.
  # @private
  class Estimate
    # An estimate that may be off by more than this is used, but not kept.
    MOST_DOUBT = 0.25

    attr_reader :offset, :doubt, :asked

    def initialize(offset, doubt, asked)
      @offset = offset
      @doubt = doubt
      @asked = asked
    end

    # From a reply to TIME: the server read its clock at some moment between `sent` and `received`.
    def self.of(reply, sent, received)
      seconds, micros = reply.is_a?(Array) && reply.size == 2 ? reply.map { |word| Integer(word, exception: false) } : nil
      raise ReplyError, "ERR unexpected reply #{reply.inspect} to TIME" unless seconds && micros

      server = seconds + (micros / 1_000_000.0)
      new(server - ((sent + received) / 2), (received - sent) / 2, received)
    end

    # Whether it is accurate enough to be kept.
    def good?
      @doubt <= MOST_DOUBT
    end
  end

  # The server's clock, and the margin that the server adds to leases. Each is requested at most once a minute, by one
  # caller at a time, while others wait for its answer.
  # @private
  class ServerClock
    VALID_FOR = 60.0
    PAUSE = 0.01
    USUAL_MARGIN = 1.0

    # The margin, as currently known.
    attr_reader :margin

    def initialize(client)
      @client = client
      @asking = Gate.new(1)
      # By key in a cluster, because each of its servers has its own clock.
      @known = {}
      @margin = USUAL_MARGIN
      @margin_asked = -Float::INFINITY
    end

    # The seconds that the server adds to a lease, from a reply to LOCK.INFO.
    def self.margin_of(reply)
      lease, free = Request.fields(reply).values_at("lease-ms", "free-in-ms")
      return USUAL_MARGIN unless lease.is_a?(Integer) && lease.positive? && free.is_a?(Integer)

      # Both are whole milliseconds, one rounded down and the other up.
      [free - lease - 1, 0].max / 1000.0
    end

    # Estimates the clock of the key's server. @raise [ReplyError, ConnectionLost]
    def read(key)
      place = @client.cluster? ? key : nil
      fresh(place) || one_by_one { fresh(place) || keep(place, ask(key)) }
    end

    # The margin, asked for if necessary.
    def read_margin(key)
      one_by_one { ask_margin(key) unless fresh_margin? } unless fresh_margin?
      @margin
    rescue ConnectionLost
      @margin
    end

    private

    # The gate masks exceptions; they can strike in blocking calls.
    def one_by_one(&)
      @asking.with(within: @client.timeout) { Thread.handle_interrupt(ON_BLOCKING, &) }
    end

    def fresh(place)
      found = @known[place]
      found if found && @client.clock.now < found.asked + VALID_FOR
    end

    def keep(place, made)
      return made unless made.good?

      # Other callers read the hash in the meantime.
      @known = @known.select { |_, old| made.asked < old.asked + VALID_FOR }.merge(place => made)
      made
    end

    # Asks twice if the reply is lost or slow.
    def ask(key)
      made = first(key)
      return made if made.good?

      # It may have had to wait for a new connection.
      again = begin
        call(key)
      rescue ReplyError, ConnectionLost
        made
      end
      [made, again].min_by(&:doubt)
    end

    def first(key)
      call(key)
    rescue ReplyError, ConnectionLost => e
      raise if e.is_a?(ReplyError) && !e.again?

      @client.clock.sleep(PAUSE)
      call(key)
    end

    def call(key)
      sent = nil
      reply = @client.time(key) { sent = @client.clock.now }
      Estimate.of(reply, sent, @client.clock.now)
    end

    def fresh_margin?
      @client.clock.now < @margin_asked + VALID_FOR
    end

    def ask_margin(key)
      begin
        @margin = ServerClock.margin_of(@client.call(["lock.info", key]))
      rescue ReplyError
        nil # this user is not allowed to ask
      end
      @margin_asked = @client.clock.now
    end
  end
end
