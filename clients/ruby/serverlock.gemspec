# frozen_string_literal: true

require_relative "lib/serverlock/version"

Gem::Specification.new do |spec|
  spec.name = "serverlock"
  spec.version = Serverlock::VERSION
  spec.authors = ["The redis-lock authors"]
  spec.summary = "Distributed locks for Redis and Valkey servers with the redis-lock module"
  spec.description = "The client of redis-lock, a module that makes locking a server command: waiters queue in order, " \
                     "each grant has a fencing token, and a new holder can tell if its predecessor crashed."
  spec.homepage = "https://example.com/redis-lock"
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir.chdir(__dir__) { Dir["lib/**/*.{rb,lua}", "sig/**/*.rbs", "LICENSE", "README.md"] }
  spec.add_dependency "redis", ">= 4.8", "< 6"
  spec.metadata["source_code_uri"] = "https://example.com/redis-lock"
  spec.metadata["rubygems_mfa_required"] = "true"
end
