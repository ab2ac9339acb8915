# frozen_string_literal: true

module Serverlock
  module Testing
    # The arguments of LOCK.*, as {Command} writes them.
    # @private
    module Arguments
      MOST = 4096

      module_function

      # The keys of a command, and the words after them.
      def keys(words, several)
        return [[words[0].b], words.drop(1)] unless several

        [words[1, words[0]].map(&:b), words.drop(1 + words[0])]
      end

      def ask(keys, words, connection, recovers)
        options = options(words)
        shares = options.key?("SHARED") || options.key?("LIMIT")
        most = options.fetch("LIMIT", shares ? MOST : 1)
        Ask.new(keys:, lease: ms(options.fetch("PX")), wait: ms(options.fetch("WAIT", 0)), id: options["ID"], owner: options["OWNER"],
                most:, shares:, channel: options["NOTIFY"], session: options.key?("SESSION"), connection:,
                details: options.key?("DETAILS") || recovers, recovers:, takes_result: options.key?("RESULT"))
      end

      def ms(number)
        Clock.ticks(Rational(number, 1000))
      end

      def options(words)
        words = words.dup
        options = {}
        until words.empty?
          name = words.shift
          options[name] = %w[SHARED SESSION DETAILS RESULT].include?(name) || words.shift
        end
        options
      end
    end
  end
end
