package dev.serverlock.internal.command;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** The keys that the script needs beside a lock: those of the queue, and of the result. */
final class Queues {
    private static final String QUEUE = ":queue";
    private static final String RESULT = ":result";

    private Queues() {}

    /** One queue for each lock, in the lock's slot; null if a name has a brace but no hash tag. */
    static List<byte[]> of(List<byte[]> locks) {
        List<byte[]> queues = new ArrayList<>(locks.size());
        for (byte[] lock : locks) {
            byte[] queue = of(lock);
            if (queue == null) {
                return null;
            }
            queues.add(queue);
        }
        return List.copyOf(queues);
    }

    static byte[] of(byte[] lock) {
        return beside(lock, QUEUE);
    }

    /** The key of a lock's result, in the lock's slot; null if the name has a brace but no hash tag. */
    static byte[] result(byte[] lock) {
        return beside(lock, RESULT);
    }

    private static byte[] beside(byte[] lock, String suffix) {
        int opens = indexOf(lock, '{', 0);
        ByteArrayOutputStream name = new ByteArrayOutputStream(2 * lock.length + 10);
        name.writeBytes(lock);
        name.writeBytes(ascii(suffix));
        if (opens < 0 && indexOf(lock, '}', 0) < 0) {
            name.writeBytes(ascii(":{"));
            name.writeBytes(lock);
            name.write('}');
        } else if (opens < 0 || indexOf(lock, '}', opens) <= opens + 1) {
            return null; // nothing between its first opening brace and the next closing one
        }
        return name.toByteArray();
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static int indexOf(byte[] bytes, char wanted, int from) {
        for (int i = from; i < bytes.length; i++) {
            if (bytes[i] == wanted) {
                return i;
            }
        }
        return -1;
    }
}
