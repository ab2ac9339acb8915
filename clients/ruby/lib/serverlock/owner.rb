# frozen_string_literal: true

require "socket"

module Serverlock
  # The owner of a lock whose caller names none, so that operators see which process holds it.
  # @private
  module Owner
    LONGEST = 128

    @known = nil

    # The host's name and the ID of this process, which is a different one after a fork.
    def self.host_and_pid
      pid = Process.pid
      known = @known
      known = @known = [pid, label(Socket.gethostname, pid)].freeze if known.nil? || known[0] != pid
      known[1]
    end

    def self.label(host, pid)
      rest = ":#{pid}"
      visible = host.dup.force_encoding("UTF-8").scrub("?").gsub(/[^!-~]/, "?")
      (visible[0, LONGEST - rest.size] + rest).freeze
    end
  end
end
