package dev.serverlock.testing;

import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Clocked;
import dev.serverlock.spi.AsyncNode;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.Server;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** One process's client of a server in memory. Its commands take no time. */
record MemoryClient(Commands commands) implements Server, Clocked, AsyncNode {
    @Override
    public Clock clock() {
        return commands.clock().ticking();
    }

    @Override
    public Node node(byte[] key) {
        return this;
    }

    @Override
    public boolean isAsync() {
        return true;
    }

    @Override
    public boolean isShared() {
        return true;
    }

    @Override
    public void exchange(List<Call> calls, Duration timeout) {
        for (Call call : calls) {
            commands.run(null, call.words).whenComplete((reply, error) -> {
                call.value = reply;
                call.error = (RuntimeException) error;
            });
        }
    }

    @Override
    public CompletableFuture<Void> send(List<Call> calls, Duration timeout) {
        exchange(calls, timeout);
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public MemoryConnection dial(Duration timeout) {
        return new MemoryConnection(commands, message -> {});
    }

    @Override
    public MemoryConnection watch(Duration timeout) {
        return dial(timeout);
    }

    @Override
    public MemoryConnection subscribe(String channel, Consumer<String> onMessage, Duration timeout) {
        MemoryConnection connection = new MemoryConnection(commands, onMessage);
        Table table = commands.table();
        table.change(() -> table.subscribe(channel, connection));
        return connection;
    }
}
