package dev.serverlock.spring;

import java.util.function.Consumer;
import java.util.function.Supplier;

/** Makes a connection when it is needed, and keeps it until the end. Thread-safe. */
final class Kept<T> implements Supplier<T> {
    private final Supplier<T> connect;
    private T value;

    Kept(Supplier<T> connect) {
        this.connect = connect;
    }

    @Override
    public synchronized T get() {
        if (value == null) {
            value = connect.get();
        }
        return value;
    }

    /** close: how to close the connection, if there is one. */
    synchronized void close(Consumer<T> close) {
        if (value != null) {
            close.accept(value);
        }
    }
}
