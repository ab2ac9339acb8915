/**
 * What serverlock needs of a client library. The packages {@code jedis} and {@code lettuce} provide it; applications
 * have no use for this one.
 */
package dev.serverlock.spi;
