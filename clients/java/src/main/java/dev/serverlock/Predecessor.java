package dev.serverlock;

import java.time.Duration;

/**
 * A holder that did not release its lock, and whose work may be half done.
 *
 * @param overdue the time since its lease expired
 * @param token its fencing token
 * @param owner its label; empty if it had none
 */
public record Predecessor(Duration overdue, long token, String owner) {}
