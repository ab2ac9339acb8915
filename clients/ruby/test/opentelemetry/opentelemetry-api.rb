# frozen_string_literal: true

# The interface of the gems opentelemetry-api 1.11.0 and opentelemetry-metrics-api 0.7.0 as far as the package uses it,
# with the same signatures. It records what an SDK would export. Debian has no such gems.
module OpenTelemetry
  # What is current in the caller's block.
  class Context
    def self.current
      @current ||= :root
    end

    def self.with_current(context)
      before = current
      @current = context
      yield
    ensure
      @current = before
    end
  end

  # Spans.
  module Trace
    Status = Struct.new(:code, :description) do
      def self.error(description = "")
        new(:error, description)
      end
    end

    # A span, which cannot change once it is finished.
    class Span
      attr_reader :name, :kind, :parent, :attributes, :events, :status, :scope

      def initialize(name, kind, parent, attributes, provider, scope)
        @name = name
        @kind = kind
        @parent = parent
        @attributes = {}
        @provider = provider
        @scope = scope
        @events = []
        attributes.each { |key, value| set_attribute(key, value) }
      end

      def set_attribute(key, value)
        raise "#{@name} is finished" if @finished

        # An exporter sends text as UTF-8.
        raise "#{value.inspect} is not text" unless [*value].all? { |it| !it.is_a?(String) || it.encode(Encoding::UTF_8).valid_encoding? }

        @attributes[key] = value
        self
      end

      def add_event(name, attributes: nil, timestamp: nil) # rubocop:disable Lint/UnusedMethodArgument
        @events << name
        self
      end

      def status=(status)
        raise "#{@name} is finished" if @finished

        @status = status
      end

      def finish(end_timestamp: nil) # rubocop:disable Lint/UnusedMethodArgument
        raise "#{@name} is finished" if @finished

        @finished = true
        @provider.finished << self
        self
      end
    end

    Tracer = Struct.new(:provider, :scope) do
      # rubocop:disable Lint/UnusedMethodArgument
      def start_span(name, with_parent: nil, attributes: nil, links: nil, start_timestamp: nil, kind: nil)
        Span.new(name, kind, with_parent, attributes, provider, scope)
      end
      # rubocop:enable Lint/UnusedMethodArgument
    end

    # Keeps the spans that have ended.
    class TracerProvider
      def finished
        @finished ||= []
      end

      def tracer(deprecated_name = nil, deprecated_version = nil, name: nil, version: nil, attributes: nil) # rubocop:disable Lint/UnusedMethodArgument
        Tracer.new(self, [deprecated_name || name, deprecated_version || version])
      end
    end
  end

  # Metrics.
  module Metrics
    # Keeps what was recorded: a count and a sum for each set of attributes.
    class Instrument
      def initialize(name, unit, points)
        @name = "#{name} #{unit}"
        @points = points
        @mutex = Mutex.new
      end

      def record(amount, attributes: {})
        @mutex.synchronize do
          point = (@points[[@name, attributes]] ||= [0, 0])
          point[0] += 1
          point[1] += amount
        end
      end
      alias add record
    end

    # Keeps the points of all instruments.
    class MeterProvider
      attr_reader :points, :scope

      def initialize
        @points = {}
      end

      def meter(name, version: nil, attributes: nil) # rubocop:disable Lint/UnusedMethodArgument
        @scope = [name, version]
        self
      end

      # rubocop:disable Lint/UnusedMethodArgument
      def create_histogram(name, unit: nil, description: nil, exemplar_filter: nil, exemplar_reservoir: nil)
        Instrument.new(name, unit, @points)
      end
      # rubocop:enable Lint/UnusedMethodArgument
      alias create_counter create_histogram
      alias create_up_down_counter create_histogram
    end
  end

  class << self
    attr_accessor :tracer_provider
  end
end
