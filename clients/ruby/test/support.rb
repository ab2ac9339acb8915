# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "minitest/autorun"
require "serverlock"
require "socket"
require "tmpdir"
require_relative "waiting"

# The tests' own server, on a free port, with the module.
module TestServer
  MODULE = ENV.fetch("SERVERLOCK_MODULE") { File.expand_path("../../../target/release/libredis_lock.so", __dir__) }

  class << self
    def port
      @port ||= start
    end

    def redis(**options)
      Redis.new(port:, timeout: 2, **options)
    end

    # Runs the block with a server without the module.
    def without_module
      port = free_port
      pid = launch(port, [])
      yield Redis.new(port:, timeout: 2)
    ensure
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end

    private

    def start
      port = free_port
      pid = launch(port, ["--loadmodule", MODULE])
      me = Process.pid
      Minitest.after_run { Process.kill(:KILL, pid) if Process.pid == me }
      port
    end

    def launch(port, more)
      log = File.join(Dir.tmpdir, "serverlock-ruby-#{port}.log")
      pid = spawn(ENV.fetch("REDIS_SERVER", "redis-server"), "--port", port.to_s, "--bind", "127.0.0.1", "--save", "",
                  "--dir", Dir.tmpdir, *more, out: log, err: log)
      Waiting.until("the server answers: #{log}") { Redis.new(port:).ping == "PONG" }
      File.delete(log)
      pid
    end

    def free_port
      TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    end
  end
end

# A test with a server and a manager.
class LockTest < Minitest::Test
  def setup
    @redis = TestServer.redis
    @redis.flushall
    @locks = Serverlock::Locks.new(TestServer.redis)
  end

  def teardown
    @locks.close
  end

  def info(key)
    @redis.call("lock.info", key).each_slice(2).to_h
  end

  def state(key)
    info(key)["state"]
  end

  def eventually(what, &)
    Waiting.until(what, &)
  end
end
