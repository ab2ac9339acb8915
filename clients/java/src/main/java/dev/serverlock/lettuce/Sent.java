package dev.serverlock.lettuce;

import dev.serverlock.spi.ReplyException;
import dev.serverlock.spi.ServerException;
import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.netty.buffer.ByteBuf;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/**
 * One command as Lettuce sends it, and whether it was written. On its own, Lettuce would write it again after a
 * reconnect, and apply its own time-out. Neither happens here.
 */
final class Sent extends AsyncCommand<byte[], byte[], Object> {
    private volatile int writes;

    Sent(byte[][] words) {
        super(new Command<>(new Keyword(words[0]), new ReplyOutput(), arguments(words)));
    }

    private record Keyword(byte[] bytes) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return bytes;
        }

        @Override
        public String toString() {
            return new String(bytes, StandardCharsets.US_ASCII);
        }
    }

    private static CommandArgs<byte[], byte[]> arguments(byte[][] words) {
        CommandArgs<byte[], byte[]> arguments = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        for (int at = 1; at < words.length; at++) {
            arguments.add(words[at]);
        }
        return arguments;
    }

    @Override
    public void encode(ByteBuf buffer) {
        count();
        super.encode(buffer);
    }

    private synchronized void count() {
        writes++;
    }

    boolean wasWritten() {
        return writes > 0;
    }

    boolean wasRewritten() {
        return writes > 1;
    }

    @Override
    public boolean completeExceptionally(Throwable error) {
        // The reply may still arrive, and is still useful.
        return !(error instanceof RedisCommandTimeoutException) && super.completeExceptionally(error);
    }

    /** An error reply, or a connection error. */
    static RuntimeException read(Throwable error) {
        Throwable root = error;
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ServerException || cause instanceof ReplyException) {
                return (RuntimeException) cause;
            }
            if (cause instanceof io.lettuce.core.RedisCommandExecutionException) {
                return new ReplyException(String.valueOf(cause.getMessage()));
            }
            root = cause;
        }
        String text = Objects.requireNonNullElse(error.getMessage(), error.toString());
        return new ServerException(root == error ? text : text + " (" + root.getMessage() + ")", error);
    }
}
