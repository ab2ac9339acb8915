# frozen_string_literal: true

# The order `single_flight`: the block of each call runs in its own thread, like the body of a scope.
module Flights
  private

  def do_single_flight(order)
    return single_flight(order) unless order["within"]

    within(order, @scopes[order["within"]].orders) { single_flight(order) }
  end

  def single_flight(order)
    options = { lease: order["lease_ms"], interrupt: !order["stays"] }
    order.each { |name, value| options[Driver::SECONDS[name]] = value.is_a?(Numeric) ? value / 1000.0 : value if Driver::SECONDS[name] }
    options[:owner] = order["owner"] if order.key?("owner")
    options[:on_lost] = lost(order, :scope) if order["scope"]
    computed = false
    value = @managers[order["manager"]].single_flight(key(order["key"]), **options) do |held|
      compute(order, held) if order["scope"]
      computed = true
      order["value"].nil? ? 42 : key(order["value"])
    end
    { value: shown(value), computed: }
  end

  def compute(order, held)
    body = Body.new
    body.flight = order.except("scope", "within")
    scope(order, body, held)
  end

  # Bytes as an answer has them.
  def shown(bytes)
    text = bytes.dup.force_encoding("UTF-8")
    text.valid_encoding? ? text : { hex: bytes.unpack1("H*") }
  end
end
