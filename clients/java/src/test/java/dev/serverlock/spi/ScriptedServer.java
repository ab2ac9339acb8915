package dev.serverlock.spi;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** One server whose replies a test makes. It has one shared connection, and remembers what it was sent. */
public final class ScriptedServer implements Server, Node {
    /** Makes a reply from the words of a command. */
    public interface Script {
        /**
         * Replies to a command, in the thread of its caller.
         *
         * @param words the command
         * @return Long, String, null, or a List of these
         */
        Object reply(List<String> words);
    }

    /** Thrown by a script whose reply is overdue. */
    public static final class Overdue extends RuntimeException {
        private static final long serialVersionUID = 1;

        private final transient CompletableFuture<Object> late;

        /**
         * An overdue reply.
         *
         * @param late completes when it arrives
         */
        public Overdue(CompletableFuture<Object> late) {
            super("no reply in time");
            this.late = late;
        }
    }

    private final Script script;
    private final List<List<String>> sent = Collections.synchronizedList(new ArrayList<>());

    /**
     * Creates it.
     *
     * @param script its replies
     */
    public ScriptedServer(Script script) {
        this.script = script;
    }

    /** {@return this server as the only one of a cluster} */
    public Cluster cluster() {
        return new Cluster() {
            @Override
            public Node node(byte[] key) {
                return ScriptedServer.this;
            }

            @Override
            public Node nodeAt(String address) {
                return ScriptedServer.this;
            }

            @Override
            public void refresh() {}
        };
    }

    /**
     * Finds what it was sent.
     *
     * @param command the name of a command
     * @return the words of each
     */
    public List<List<String>> sent(String command) {
        synchronized (sent) {
            return sent.stream().filter(words -> words.get(0).equals(command)).toList();
        }
    }

    /**
     * Counts what it was sent.
     *
     * @param command the name of a command
     * @return how often
     */
    public int count(String command) {
        return sent(command).size();
    }

    @Override
    public Node node(byte[] key) {
        return this;
    }

    @Override
    public void exchange(List<Call> calls, Duration timeout) {
        for (Call call : calls) {
            List<String> words = Arrays.stream(call.words)
                    .map(word -> new String(word, StandardCharsets.UTF_8))
                    .toList();
            sent.add(words);
            try {
                call.value = raw(script.reply(words));
            } catch (Overdue overdue) {
                call.error = new ServerException(overdue.getMessage(), overdue);
                call.late = overdue.late;
            } catch (ReplyException | ServerException error) {
                call.error = error;
            }
        }
    }

    private static Object raw(Object reply) {
        if (reply instanceof String text) {
            return text.getBytes(StandardCharsets.UTF_8);
        }
        return reply instanceof List<?> list
                ? list.stream().map(ScriptedServer::raw).toList()
                : reply;
    }

    @Override
    public boolean isShared() {
        return true;
    }

    @Override
    public Connection dial(Duration timeout) {
        throw new ServerException("it has only one connection", null);
    }

    @Override
    public WatchedConnection watch(Duration timeout) {
        throw new ServerException("it has only one connection", null);
    }

    @Override
    public Connection subscribe(String channel, Consumer<String> onMessage, Duration timeout) {
        throw new ServerException("it has only one connection", null);
    }
}
