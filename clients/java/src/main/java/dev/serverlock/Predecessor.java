package dev.serverlock;

import java.time.Duration;

/**
 * A holder that never released: its work may be half done.
 *
 * @param overdue how long ago its lease ended
 * @param token its fencing token
 * @param owner its label; empty if it had none
 */
public record Predecessor(Duration overdue, long token, String owner) {}
