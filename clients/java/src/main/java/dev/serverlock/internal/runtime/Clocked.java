package dev.serverlock.internal.runtime;

/** A server with a clock of its own, which its managers use too. */
public interface Clocked {
    Clock clock();
}
