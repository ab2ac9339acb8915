# frozen_string_literal: true

module Serverlock
  # How long a hold may believe that it has its lock. Times are seconds of {Clock}.
  #
  # While an EXTEND is on its way, and after its reply was lost, the client does not know which lease the server
  # applies, so it assumes the one that ends first.
  # @private
  class Lease
    # @return [Float] when the lock starts to count as lost: a tenth of the lease before its end
    attr_reader :lost_at
    # @return [Float] when its renewal is due
    attr_reader :due_at

    # `kept`: the part of the lease after which the lock counts as lost. Adapters without renewal use all of it.
    def initialize(from, seconds, kept = 0.9)
      @kept = kept
      @unknown = []
      confirm(from, seconds)
    end

    # When the lease ends, by the last confirmed EXTEND.
    def ends_at
      @from + @seconds
    end

    # Whether an EXTEND is on its way.
    def changing?
      @unknown.any? { |change| !change[2] }
    end

    # Call this before an EXTEND is sent. Returns the argument for `confirmed`, `refused` or `unanswered`.
    def sent(now, seconds)
      change = [now, seconds]
      @unknown << change
      settle
      change
    end

    # Call this once the server has carried out the EXTEND.
    def confirmed(change)
      from, seconds = change
      # Each of the others may have been carried out after this one.
      shortest = @unknown.map { |other| other[1] }.push(seconds).min
      @unknown.reject! { |other| other.equal?(change) || other[2] }
      confirm(from, shortest)
    end

    # Call this if the server has refused the EXTEND, so that nothing has changed.
    def refused(change)
      @unknown.reject! { |other| other.equal?(change) }
      settle
    end

    # Call this if the reply to the EXTEND was lost.
    def unanswered(change)
      change[2] = true
    end

    # Call this if a renewal failed: the next one is due after a twentieth of the lease.
    def retry_at(now)
      @due_at = now + (@seconds / 20)
    end

    private

    def confirm(from, seconds)
      @from = from
      @seconds = seconds
      # Rounded to about a hundredth of the lease, so that one pipeline renews many locks.
      grain = 2.0**Math.log2(seconds / 64).floor
      @due_at = ((from + (seconds / 3)) / grain).ceil * grain
      settle
    end

    def settle
      @lost_at = @from + (@seconds * @kept)
      @unknown.each { |from, seconds| @lost_at = [@lost_at, from + (seconds * @kept)].min } unless @unknown.empty?
    end
  end
end
