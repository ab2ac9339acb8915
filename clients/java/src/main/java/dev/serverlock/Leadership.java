package dev.serverlock;

/**
 * Who leads.
 *
 * @param token the fencing token of the leader; 0 while nobody leads
 * @param owner its label; empty if it has none
 */
public record Leadership(long token, String owner) {}
