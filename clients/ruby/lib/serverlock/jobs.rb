# frozen_string_literal: true

require "digest"
require "json"
require_relative "../serverlock"

module Serverlock
  # Shared by the Sidekiq and ActiveJob adapters.
  # @private
  module Jobs
    # The same key for the same class and arguments.
    def self.key(name, arguments)
      "serverlock:job:#{name}:#{Digest::SHA256.hexdigest(JSON.generate(arguments))[0, 32]}"
    end
  end
end
