# frozen_string_literal: true

module Serverlock
  # Reports one attempt and its hold to a watch from `on_attempt`: first the result of the attempt, and after a grant,
  # once, the end of the hold. An error there does not lose a lock.
  # @private
  class Watching
    # Call this in the thread that asks, before anything is sent.
    # @return [Watching, nil]
    def self.begin(engine, request)
      on_attempt = engine.hooks[:on_attempt] or return
      watch = guarded(engine) { on_attempt.call(request.keys.map { |key| shown(key) }) }
      new(engine, request, watch) if watch
    end

    # A watch must not block, so no exception of another thread interrupts it.
    def self.guarded(engine, &)
      Thread.handle_interrupt(NEVER, &)
    rescue StandardError => e
      engine.say("a watch failed: #{e.full_message(highlight: false)}")
      nil
    end

    # A key as UTF-8, with escapes for bytes that are not.
    def self.shown(key)
      key.dup.force_encoding(Encoding::UTF_8).scrub { |bytes| bytes.bytes.map { |byte| format("\\x%02x", byte) }.join }
    end
    private_class_method :shown

    def initialize(engine, request, watch)
      @engine = engine
      @request = request
      @watch = watch
      @began = engine.clock.now
      @mutex = Mutex.new
    end

    # Call this before the hold can end.
    def granted(hold)
      @granted_at = @engine.clock.now
      tell(:granted, command, hold.token, @granted_at - @began)
    end

    # The attempt got nothing. `error`: nil if the caller was interrupted.
    def failed(error)
      tell(:failed, command, @engine.clock.now - @began, error)
    end

    # The attempt got the result of another holder.
    def result
      tell(:result, command, @engine.clock.now - @began)
    end

    # The hold has ended. Only the first call counts. `error`: the loss, if it was lost.
    def ended(how, error = nil)
      was_over = Thread.handle_interrupt(NEVER) { @mutex.synchronize { @over.tap { @over = true } } }
      tell(:ended, how, @engine.clock.now - @granted_at, error) unless was_over
    end

    private

    def tell(what, *arguments)
      Watching.guarded(@engine) { @watch.public_send(what, *arguments) }
    end

    # The command, or the function of the script.
    def command
      name = @request.recover ? "recover" : "acquire"
      return "lock_#{name}#{'_all' if @request.several?}" if @engine.server.module_missing? && !@request.needs_module?

      "LOCK.#{'M' if @request.several?}#{name.upcase}"
    end
  end
end
