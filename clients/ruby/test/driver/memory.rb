# frozen_string_literal: true

require "serverlock/testing"

# The orders for in-memory servers.
module Memory
  private

  # A client whose `with` is that of a pool and of a Redis.
  Client = Struct.new(:server) do
    def with
      yield server
    end
  end

  def memory(order)
    @mutex.synchronize { (@servers ||= {})[order["name"]] ||= Serverlock::Testing::Server.new }
  end

  def do_advance(order)
    memory(order).clock.advance(order["ms"] / 1000.0)
  end

  def do_expire(order)
    memory(order).expire(key(order["key"]))
  end

  def do_lose(order)
    memory(order).lose(held(order))
  end

  def do_refuse(order)
    memory(order).refuse(key(order["key"]))
  end

  def do_allow(order)
    memory(order).allow(key(order["key"]))
  end
end
