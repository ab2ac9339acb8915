# frozen_string_literal: true

# The suite's driver for Ruby: docs/CLIENT_SPEC.md describes the lines that it reads and writes.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require_relative "redis5" if ARGV[0]&.start_with?("redis-rb-5")
require "connection_pool"
require "json"
require "serverlock"
require_relative "driver/flights"
require_relative "driver/memory"
require_relative "driver/scopes"
require_relative "driver/storm"

# An attempt that was cancelled.
class Cancelled < Exception # rubocop:disable Lint/InheritException
end

# The exception that makes a scope's body fail.
class Work < StandardError
end

# An order that this language cannot carry out.
class Cannot < StandardError
end

# Carries out orders.
class Driver
  include Flights
  include Memory
  include Scopes
  include Storm

  ABILITIES = %w[sentinel cluster tls unix cancel stop fork drop background pooled session leader storm census clock refusals
                 moves scopes few_threads half_open queue once default_owner recover_free reentrant deadlock
                 memory single_flight].freeze
  MEANS = %w[raise kill timeout].freeze
  OPTIONS = { "owner" => :owner, "replicas" => :replicas, "session" => :session, "details" => :details, "fsync" => :fsync,
              "reentrant" => :reentrant }.freeze
  SECONDS = { "lease_ms" => :lease, "wait_ms" => :wait, "replicas_within_ms" => :replicas_within, "at_least_ms" => :at_least,
              "max_hold_ms" => :max_hold }.freeze

  def initialize(client)
    @client = client
    @writing = Mutex.new
    @mutex = Mutex.new
    @managers = {}
    @clients = {}
    @objects = {}
    @holds = {}
    @scopes = {}
    @leaders = {}
    @pending = {}
  end

  def run
    say(event: "ready", language: "ruby", client: @client, version: Redis::VERSION, can: ABILITIES, storms: MEANS)
    $stdin.each_line do |line|
      order = JSON.parse(line)
      # The order can be cancelled once `play` runs.
      thread = Thread.handle_interrupt(Cancelled => :never) { Thread.new { play(order) } }
      thread.report_on_exception = false
      @mutex.synchronize { @pending[order["n"]] = thread if thread.alive? }
    end
    exit!(0)
  end

  private

  def say(line)
    @writing.synchronize do
      $stdout.puts(JSON.generate(line))
      $stdout.flush
    end
  end

  def play(order)
    name = :"do_#{order["do"]}"
    raise Cannot, order["do"] unless respond_to?(name, true)

    answer = Thread.handle_interrupt(Cancelled => :immediate) { { n: order["n"], ok: send(name, order) || {} } }
  rescue Cancelled => e
    answer = failure(order, "cancelled", e.message)
  rescue Serverlock::Error => e
    answer = failure(order, e.code, e.message)
  rescue Work => e
    answer = failure(order, "work", e.message)
  rescue Cannot => e
    answer = failure(order, "cannot", e.message)
  rescue ArgumentError => e
    answer = failure(order, "argument", e.full_message(highlight: false))
  rescue Exception => e # rubocop:disable Lint/RescueException
    answer = failure(order, "unknown", e.full_message(highlight: false))
  ensure
    Thread.handle_interrupt(Object => :never) do
      @mutex.synchronize { @pending.delete(order["n"]) }
      say(answer) if answer
    end
  end

  def failure(order, kind, text)
    { n: order["n"], error: { kind:, text: text.dup.force_encoding("UTF-8").scrub } }
  end

  def connect(at, order)
    options = { timeout: order.fetch("timeout_ms", 2000) / 1000.0 }
    options[:username] = at["user"] if at["user"]
    options[:password] = at["password"] if at["password"]
    case at["kind"]
    when "single" then options.update(host: at["host"], port: at["port"])
    when "unix" then options[:path] = at["path"]
    when "sentinel"
      options.update(url: "redis://#{at['master']}", role: :master,
                     sentinels: at["sentinels"].map { |host, port| { host:, port: } })
    when "cluster" then options[:cluster] = at["nodes"].map { |host, port| "redis://#{host}:#{port}" }
    end
    options.update(ssl: true, ssl_params: { ca_file: at["tls"]["ca"] }) if at["tls"]
    @client.end_with?("-pool") ? ConnectionPool.new(size: 5) { redis(options) } : redis(options)
  end

  def redis(options)
    return Redis.new(options) if options[:cluster].nil? || Redis::VERSION.start_with?("4.")

    require "redis-clustering"
    Redis::Cluster.new(nodes: options.delete(:cluster), **options)
  end

  def do_open(order)
    at = order["at"]
    client = at["kind"] == "memory" ? Memory::Client.new(memory(at)) : connect(at, order)
    options = { portable: order.fetch("portable", true) }
    if order["hooks"]
      %w[granted refused lost released].each do |name|
        options[:"on_#{name}"] = lambda do |it|
          say({ event: "hook", manager: order["manager"], name:, key: it.key, waited_ms: it.waited&.*(1000),
                held_ms: it.held&.*(1000) }.compact)
        end
      end
    end
    @clients[order["manager"]] = client
    @managers[order["manager"]] = at["kind"] == "memory" ? client.server.locks(**options) : Serverlock::Locks.new(client, **options)
    nil
  end

  def do_close(order)
    @managers[order["manager"]].close
  end

  def do_raw(order)
    client = @clients[order["manager"]]
    { reply: client.with { |redis| redis.call(*order["args"]) } }
  end

  def key(key)
    key.is_a?(Hash) ? [key["hex"]].pack("H*") : key
  end

  def lock(order, on_lost: nil, interrupt: false)
    return @objects[order["object"]] if order["object"] && order["do"] != "object"

    options = { lease: nil, interrupt: }
    order.each do |name, value|
      options[SECONDS[name]] = value.is_a?(Numeric) ? value / 1000.0 : value if SECONDS[name]
      options[OPTIONS[name]] = value if OPTIONS[name]
    end
    takes = order["lost_takes_ms"]
    options[:on_lost] = lambda do |held|
      sleep(takes / 1000.0) if takes
      on_lost&.call(held)
    end
    locks = @managers[order["manager"]]
    if order.key?("keys") then locks.all_of(order["keys"].map { |key| key(key) }, **options)
    elsif order["shared"] then locks.shared(key(order["key"]), **options)
    elsif order.key?("limit") then locks.limit(key(order["key"]), order["limit"], **options)
    elsif order["recover"] then locks.recover(key(order["key"]), **options.except(:details))
    else
      locks.lock(key(order["key"]), **options)
    end
  end

  def do_object(order)
    @objects[order["object"]] = lock(order)
    nil
  end

  def lost(order, name)
    ->(_) { say(event: "lost", name => order[name.to_s], text: "the lock #{order['key'].inspect} is lost") }
  end

  def kept(order, held)
    @holds[order["hold"]] = held
    answer = { token: held.token }
    before = held.predecessor
    if order["details"] || order["recover"]
      answer[:predecessor] = before && { token: before.token, owner: before.owner, overdue_ms: before.overdue * 1000 }
    end
    answer
  end

  def do_acquire(order)
    acquire = -> { kept(order, lock(order, on_lost: lost(order, :hold)).acquire) }
    return acquire.call unless order["within"]

    after = order["cancel_after_ms"]
    within(order, @scopes[order["within"]].orders) do
      after ? Timeout.timeout(after / 1000.0, Cancelled) { acquire.call } : acquire.call
    end
  end

  def held(order)
    order["hold"] ? @holds[order["hold"]] : @scopes[order["scope"]].held
  end

  def do_check(order)
    { left_ms: held(order).check * 1000 }
  end

  def do_left(order)
    { left_ms: held(order).left * 1000 }
  end

  def do_verify(order)
    { left_ms: held(order).verify * 1000 }
  end

  def do_extend(order)
    held(order).extend(order["lease_ms"]&./(1000.0))
    nil
  end

  def do_release(order)
    { held: held(order).release }
  end

  def do_fenced(order)
    { reply: held(order).fenced(*order["args"]) }
  end

  def do_drop(order)
    # The hold is dropped in its own thread, whose stack is gone before garbage collection. The timer refers to a new
    # hold until it has looked at it, so the collection is repeated for a few seconds.
    Thread.new { @holds.delete(order["hold"]) && nil }.join
    Thread.new do
      20.times do
        GC.start
        sleep(0.2)
      end
    end
    nil
  end

  def do_cancel(order)
    thread = @mutex.synchronize { @pending[order["of"]] }
    thread&.raise(Cancelled, "cancelled")
    nil
  end

  def do_census(_order)
    3.times { GC.start }
    own, others = Thread.list.partition { |thread| thread.name&.start_with?("serverlock") }
    # The package's threads start one by one, and stay.
    counts = @managers.values.map(&:census).reduce { |one, two| one.merge(two) { |_, some, more| some + more } }
    counts.merge("threads" => others.size + [own.size, 10].max)
  end

  def do_lead(order)
    tell = ->(event) { ->(token) { say(event:, leader: order["leader"], token:) } }
    options = order.key?("owner") ? { owner: order["owner"] } : {}
    leader = @managers[order["manager"]].leader(order["key"], lease: order["lease_ms"] / 1000.0, **options,
                                                              on_elected: tell["elected"], on_deposed: tell["deposed"])
    @leaders[order["leader"]] = leader.start
    nil
  end

  def do_resign(order)
    @leaders[order["leader"]].resign
    nil
  end

  def do_stop(order)
    @leaders[order["leader"]].stop
    nil
  end

  def do_observe(order)
    @managers[order["manager"]].observe(order["key"], lease: order["lease_ms"] / 1000.0) do |token, owner|
      say(event: "leader", observer: order["observer"], token:, owner:)
    end
    nil
  end
end

Driver.new(ARGV[0] || "redis-rb").run
