# frozen_string_literal: true

require "opentelemetry-api"
require_relative "../serverlock"

module Serverlock
  # Exports spans and metrics of locks with OpenTelemetry. `require "serverlock/opentelemetry"`; it needs the gem
  # opentelemetry-api, and for metrics opentelemetry-metrics-api.
  #
  # @example
  #   locks = Serverlock::Locks.new(Redis.new, on_attempt: Serverlock::Telemetry.new)
  #
  # The span `lock.wait` lasts from the call to its result, and the span `lock.hold` from the grant to its end. Their
  # parent is the caller's span. If the lock is lost, `lock.hold` has an error and the event `lock.lost`. It is not an
  # error if somebody else has the lock, or if the caller is interrupted.
  #
  # The histograms `serverlock.wait.duration` and `serverlock.hold.duration` are in seconds. The counter
  # `serverlock.losses` counts lost locks; `serverlock.held` is how many locks are held now. OpenTelemetry for Ruby
  # takes the boundaries of histograms from views, which the application adds to its meter provider: {BOUNDARIES} suit
  # seconds.
  class Telemetry
    NAME = "serverlock"
    # Seconds.
    BOUNDARIES = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200].freeze
    private_constant :NAME

    # Create it after the SDK has been configured. Any number of {Locks} may share it.
    #
    # @param tracer_provider [OpenTelemetry::Trace::TracerProvider, nil] by default the global one
    # @param meter_provider [OpenTelemetry::Metrics::MeterProvider, nil] by default the global one; without the gem for
    #   metrics, there are none
    # @param key_attribute [Boolean] metrics have the key as an attribute: only for few different keys
    def initialize(tracer_provider: nil, meter_provider: nil, key_attribute: false)
      @tracer = (tracer_provider || ::OpenTelemetry.tracer_provider).tracer(NAME, VERSION)
      @key_attribute = key_attribute
      meter_provider ||= ::OpenTelemetry.meter_provider if ::OpenTelemetry.respond_to?(:meter_provider)
      create_instruments(meter_provider.meter(NAME, version: VERSION)) if meter_provider
    end

    # Called by {Locks} when an attempt begins.
    # @private
    def call(keys)
      Watch.new(self, @tracer, keys.size == 1 ? { "serverlock.key" => keys[0] } : { "serverlock.keys" => keys })
    end

    # @private
    def waited(seconds, outcome, key)
      @waits&.record(seconds, attributes: { "serverlock.outcome" => outcome, **labels(key) })
    end

    # @private
    def began(key)
      @held&.add(1, attributes: labels(key))
    end

    # @private
    def ended(seconds, outcome, key)
      @losses&.add(1, attributes: labels(key)) if outcome == "lost"
      @held&.add(-1, attributes: labels(key))
      @holds&.record(seconds, attributes: { "serverlock.outcome" => outcome, **labels(key) })
    end

    private

    def labels(key)
      @key_attribute ? key : {}
    end

    def create_instruments(meter)
      @waits = meter.create_histogram("serverlock.wait.duration", unit: "s", description: "How long attempts to get a lock took")
      @holds = meter.create_histogram("serverlock.hold.duration", unit: "s", description: "How long locks were held")
      @losses = meter.create_counter("serverlock.losses", unit: "{loss}", description: "Locks that were lost while they were held")
      @held = meter.create_up_down_counter("serverlock.held", unit: "{lock}", description: "Locks that are held")
    end

    # One attempt, and its hold.
    # @private
    class Watch
      # Failures that are not errors.
      EXPECTED = %w[refused timeout cancelled].freeze

      def initialize(telemetry, tracer, key)
        @telemetry = telemetry
        @tracer = tracer
        @key = key
        @parent = ::OpenTelemetry::Context.current
        @wait = span("lock.wait", :client, { "db.system.name" => "redis" })
      end

      def granted(command, token, waited)
        end_wait(command, waited, "granted")
        @hold = span("lock.hold", :internal, { "serverlock.token" => token })
        @telemetry.began(@key)
      end

      def failed(command, waited, error)
        outcome = error ? error.code.to_s : "cancelled"
        failure(@wait, outcome, error) unless EXPECTED.include?(outcome)
        end_wait(command, waited, outcome)
      end

      def result(command, waited)
        end_wait(command, waited, "result")
      end

      def ended(how, held, error)
        outcome = how.to_s
        @hold.set_attribute("serverlock.outcome", outcome)
        if how == :lost
          @hold.add_event("lock.lost")
          failure(@hold, outcome, error)
        end
        @hold.finish
        @telemetry.ended(held, outcome, @key)
      end

      private

      def span(name, kind, attributes)
        @tracer.start_span(name, with_parent: @parent, kind:, attributes: { **attributes, **@key })
      end

      def end_wait(command, waited, outcome)
        @wait.set_attribute("db.operation.name", command)
        @wait.set_attribute("serverlock.outcome", outcome)
        @wait.finish
        @telemetry.waited(waited, outcome, @key)
      end

      def failure(span, kind, error)
        span.set_attribute("error.type", kind)
        span.status = ::OpenTelemetry::Trace::Status.error(error.message)
      end
    end
  end
end
