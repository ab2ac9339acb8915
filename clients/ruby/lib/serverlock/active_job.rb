# frozen_string_literal: true

require "active_job"
require_relative "jobs"

module Serverlock
  # One job at a time for the same arguments. The lock is renewed while the job runs, and ends with its process.
  #
  # @example
  #   Serverlock::ActiveJob.locks = Serverlock::Locks.new(Redis.new)
  #
  #   class ReportJob < ApplicationJob
  #     include Serverlock::ActiveJob
  #     serverlock lease: 30, conflict: :queue, again_in: 10
  #   end
  module ActiveJob
    CONFLICTS = %i[refuse queue].freeze
    private_constant :CONFLICTS

    class << self
      # @return [Locks] the locks of all jobs
      attr_accessor :locks

      # @private
      def included(job)
        job.extend(ClassMethods)
        job.around_perform { |one, block| one.class.serverlock_around(one, block) }
      end
    end

    # The class methods of a job.
    module ClassMethods
      # @param lease [Numeric] seconds; after a crash, jobs with the same arguments are refused for at most this long
      # @param wait [Numeric] seconds for which a job waits in the lock's queue, in its worker
      # @param conflict [Symbol] `:refuse`: a job that finds another running ends, and is logged; `:queue`: it is queued
      #   again
      # @param again_in [Numeric] seconds until then, with `:queue`
      # @yieldparam arguments [Array] the block returns the arguments to compare; without it, all are compared
      def serverlock(lease: 30, wait: 0, conflict: :refuse, again_in: 5, &by)
        raise BadArgument, "conflict is not one of #{CONFLICTS.inspect}: #{conflict.inspect}" unless CONFLICTS.include?(conflict)

        Request.new(name || "job", lease:, wait:) # reports bad arguments at once
        @serverlock = { lease:, wait:, conflict:, again_in:, by: }
      end

      # @private
      def serverlock_options
        @serverlock || (superclass.respond_to?(:serverlock_options) ? superclass.serverlock_options : serverlock)
      end

      # @private
      def serverlock_around(job, block)
        options = serverlock_options
        counts = options[:by] ? options[:by].call(job.arguments) : job.arguments
        key = Jobs.key(name, ::ActiveJob::Arguments.serialize(counts))
        entered = false
        ActiveJob.locks.lock(key, lease: options[:lease], wait: options[:wait]) do
          entered = true
          block.call
        end
      rescue Refused, TimedOut
        raise if entered # the error comes from a lock within the job

        job.logger&.info("serverlock: #{name} is already running with these arguments")
        job.retry_job(wait: options[:again_in]) if options[:conflict] == :queue
      end
    end
  end
end
