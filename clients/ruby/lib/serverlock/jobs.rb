# frozen_string_literal: true

require "digest"
require "json"
require_relative "../serverlock"

module Serverlock
  # What the adapters of Sidekiq and ActiveJob share.
  # @private
  module Jobs
    # The same key for the same class and arguments.
    def self.key(name, arguments)
      "serverlock:job:#{name}:#{Digest::SHA256.hexdigest(JSON.generate(arguments))[0, 32]}"
    end
  end
end
