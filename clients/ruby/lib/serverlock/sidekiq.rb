# frozen_string_literal: true

require "sidekiq"
require_relative "jobs"

module Serverlock
  # Unique Sidekiq jobs, through two middlewares. A lock ends with the process that runs the job, so nothing has to look
  # for orphans after a kill -9.
  #
  # @example
  #   Serverlock::Sidekiq.configure(Serverlock::Locks.new(Redis.new))
  #
  #   class ReportWorker
  #     include Sidekiq::Worker
  #     sidekiq_options serverlock: { unique: :until_executed, lease: 30, queued: 86_400 }
  #   end
  #
  # | option | meaning |
  # |---|---|
  # | `unique` | `:while_executing`: one at a time for the same arguments; `:until_executed`: no second one is queued |
  # | `lease` | seconds until the lock ends after its process was killed; default: 30 |
  # | `queued` | with `:until_executed`: seconds for which a queued or retried job keeps others out; default: a day |
  # | `conflict` | with `:while_executing`: `:again` reschedules a job that finds another running, `:drop` ends it |
  # | `again_in` | seconds, for `:again`; default: 5 |
  module Sidekiq
    DEFAULTS = { "unique" => "while_executing", "lease" => 30, "queued" => 86_400, "conflict" => "again", "again_in" => 5 }.freeze
    UNIQUE = %w[while_executing until_executed].freeze
    CONFLICTS = %w[again drop].freeze
    TOKEN = "serverlock_token"
    private_constant :DEFAULTS, :UNIQUE, :CONFLICTS, :TOKEN

    # Adds both middlewares to Sidekiq.
    # @param locks [Locks]
    def self.configure(locks)
      ::Sidekiq.configure_client { |config| config.client_middleware { |chain| chain.add(Client, locks) } }
      ::Sidekiq.configure_server do |config|
        config.client_middleware { |chain| chain.add(Client, locks) }
        config.server_middleware { |chain| chain.add(Server, locks) }
      end
    end

    # @private
    def self.options(job)
      own = job["serverlock"] or return
      options = DEFAULTS.merge(own.transform_keys(&:to_s))
      options.each { |name, value| options[name] = value.to_s if value.is_a?(Symbol) }
      unknown = options.keys - DEFAULTS.keys
      raise BadArgument, "serverlock: unknown options: #{unknown.join(', ')}" unless unknown.empty?
      raise BadArgument, "serverlock: unique is not one of #{UNIQUE.join(', ')}" unless UNIQUE.include?(options["unique"])
      raise BadArgument, "serverlock: conflict is not one of #{CONFLICTS.join(', ')}" unless CONFLICTS.include?(options["conflict"])

      options
    end

    # @private
    def self.key(job)
      Jobs.key(job["wrapped"] || job["class"].to_s, job["args"])
    end

    # Locks `:until_executed` jobs when they are queued.
    class Client
      # @param locks [Locks]
      def initialize(locks)
        @locks = locks
      end

      # @return [Hash, false] false: the job is not queued
      def call(_worker, job, _queue, _pool)
        options = Sidekiq.options(job)
        # A retried job, or a scheduled one whose time has come, already has its lock.
        return yield if options.nil? || options["unique"] != "until_executed" || job[TOKEN]

        # No owner: a queued job does not belong to a process.
        request = Request.new(Sidekiq.key(job), lease: options["queued"], owner: nil)
        hold = nil
        begin
          hold = @locks.grant(request)
          job[TOKEN] = hold.token
          queued = yield
        rescue Refused
          raise if hold

          ::Sidekiq.logger.info("serverlock: #{job['class']} is already queued with these arguments")
          return false
        ensure
          hold.abandon if hold && !queued
        end
        queued
      end
    end

    # Holds the lock while a job runs.
    class Server
      # @param locks [Locks]
      def initialize(locks)
        @locks = locks
      end

      # Called by Sidekiq for each job.
      def call(worker, job, _queue, &)
        options = Sidekiq.options(job) or return yield
        request = Request.new(Sidekiq.key(job), lease: options["lease"])
        options["unique"] == "until_executed" ? until_executed(request, job, options, &) : while_executing(request, worker, job, options, &)
      end

      private

      def while_executing(request, _worker, job, options)
        entered = false
        @locks.within(request) do
          entered = true
          yield
        end
      rescue Refused
        raise if entered # the error comes from a lock within the job
        return ::Sidekiq.logger.info("serverlock: #{job['class']} is already running with these arguments") if options["conflict"] == "drop"

        ::Sidekiq::Client.push(job.merge("at" => Time.now.to_f + options["again_in"]))
      end

      # The lease is short while the job runs, and long again if the job will be retried.
      def until_executed(request, job, options)
        held = (job[TOKEN] && @locks.resume(request, job[TOKEN])) || anew(request, job) or return
        begin
          yield
          done = true
        ensure
          done || held.hold.reason ? held.release : keep(held, options)
        end
      end

      # Acquires a lock that ended while its job was queued, unless another job has it now.
      def anew(request, job)
        held = @locks.acquire(request)
        job[TOKEN] = held.token
        held
      rescue Refused
        ::Sidekiq.logger.info("serverlock: another #{job['class']} has these arguments now")
        nil
      end

      def keep(held, options)
        held.hold.renews = false
        held.extend(options["queued"])
      rescue Error
        nil # it ends with its lease
      end
    end
  end
end
