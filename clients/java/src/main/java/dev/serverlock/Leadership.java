package dev.serverlock;

/**
 * A campaign's leader.
 *
 * @param token its fencing token; 0 while there is no leader
 * @param owner its label; empty if it has none
 */
public record Leadership(long token, String owner) {}
