# frozen_string_literal: true

module Serverlock
  VERSION = "1.0.0"
end
