# frozen_string_literal: true

module Serverlock
  # The parts of an exchange over a Connection, which has `stream`, `write`, `read` and `close`.
  # @private
  module Exchange
    # Waits for something to read: a reply, or the end of the connection. An exception that strikes loses nothing.
    # @return [Boolean] false if nothing has arrived by then
    def reply?(timeout)
      io = stream
      ends = Clock.now + timeout
      loop do
        return true if io.is_a?(OpenSSL::SSL::SSLSocket) && within_tls?(io)
        return false unless io.to_io.wait_readable([ends - Clock.now, 0.0].max)
        return true unless io.is_a?(OpenSSL::SSL::SSLSocket)
      end
    rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
      true # `read` reports it
    end

    # The socket, to watch it; nil where the driver does not expose it.
    def socket
      stream&.to_io
    end

    private

    # TLS has messages of its own, such as session tickets.
    def within_tls?(stream)
      byte = stream.read_nonblock(1, exception: false)
      stream.ungetc(byte) if byte.is_a?(String)
      !byte.is_a?(Symbol)
    end

    # Closes the connection if the block fails, except for an error reply.
    def whole
      result = yield
      is_whole = true
      result
    rescue ReplyError
      is_whole = true
      raise
    ensure
      close unless is_whole
    end
  end
end
