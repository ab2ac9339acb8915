package dev.serverlock.lettuce;

import dev.serverlock.spi.ReplyException;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/** Reads a reply of any type: null, Long, Double, Boolean, byte[], or a List of these. */
final class ReplyOutput extends CommandOutput<byte[], byte[], Object> {
    /** A list that is not complete yet, and how many of its items are missing. */
    private static final class Open {
        final List<Object> items;
        int missing;

        Open(int count) {
            items = new ArrayList<>(Math.max(0, count));
            missing = count;
        }
    }

    private final Deque<Open> open = new ArrayDeque<>();

    ReplyOutput() {
        super(ByteArrayCodec.INSTANCE, null);
    }

    private void add(Object value) {
        Object item = value;
        while (true) {
            if (open.isEmpty()) {
                output = item;
                return;
            }
            Open inner = open.peek();
            inner.items.add(item);
            inner.missing--;
            if (inner.missing > 0) {
                return;
            }
            item = open.pop().items;
        }
    }

    @Override
    public void set(ByteBuffer bytes) {
        byte[] copy = null;
        if (bytes != null) {
            copy = new byte[bytes.remaining()];
            bytes.get(copy);
        }
        add(copy);
    }

    @Override
    public void set(long integer) {
        add(integer);
    }

    @Override
    public void set(double number) {
        add(number);
    }

    @Override
    public void set(boolean value) {
        add(value);
    }

    @Override
    public void setError(ByteBuffer error) {
        if (open.isEmpty()) {
            super.setError(error);
        } else {
            add(new ReplyException(decodeString(error)));
        }
    }

    @Override
    public void multi(int count) {
        if (count > 0) {
            open.push(new Open(count));
        } else {
            add(count == 0 ? new ArrayList<>() : null);
        }
    }
}
