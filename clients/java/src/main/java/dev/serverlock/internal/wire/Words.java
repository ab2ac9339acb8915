package dev.serverlock.internal.wire;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Builds the words of a command as bytes. Also reads words from replies, and quotes keys. */
public final class Words {
    private static final int LONGEST_SHOWN = 200;

    private final List<byte[]> words;

    public Words(int capacity) {
        words = new ArrayList<>(capacity);
    }

    public static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    public Words add(String word) {
        words.add(bytes(word));
        return this;
    }

    public Words add(byte[] word) {
        words.add(word);
        return this;
    }

    public Words add(long number) {
        words.add(Long.toString(number).getBytes(StandardCharsets.ISO_8859_1));
        return this;
    }

    public Words addAll(byte[][] more) {
        words.addAll(List.of(more));
        return this;
    }

    public byte[][] done() {
        return words.toArray(new byte[0][]);
    }

    /** A reply's word as text; "" for nil. */
    public static String text(Object value) {
        if (value instanceof byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        return value == null ? "" : value.toString();
    }

    /** The value of a field in the reply to LOCK.INFO, or null. */
    public static Object field(Object reply, String name) {
        if (reply instanceof List<?> fields) {
            for (int at = 0; at + 1 < fields.size(); at += 2) {
                if (text(fields.get(at)).equals(name)) {
                    return fields.get(at + 1);
                }
            }
        }
        return null;
    }

    /** Quotes keys, and cuts them to a readable length. */
    public static String shown(List<byte[]> keys) {
        StringBuilder text = new StringBuilder();
        for (byte[] key : keys) {
            if (text.length() > 0) {
                text.append(", ");
            }
            if (text.length() > LONGEST_SHOWN) {
                return text.append("...").toString();
            }
            quote(text, key);
        }
        return text.toString();
    }

    private static void quote(StringBuilder text, byte[] key) {
        text.append('"');
        String decoded;
        try {
            decoded = StandardCharsets.UTF_8
                    .newDecoder()
                    .decode(ByteBuffer.wrap(key))
                    .toString();
        } catch (CharacterCodingException noText) {
            decoded = new String(key, StandardCharsets.ISO_8859_1);
        }
        decoded.chars().limit(LONGEST_SHOWN).forEach(letter -> {
            if (letter == '"' || letter == '\\') {
                text.append('\\').append((char) letter);
            } else if (Character.isISOControl(letter)) {
                text.append(String.format("\\x%02x", letter));
            } else {
                text.append((char) letter);
            }
        });
        text.append('"');
    }
}
