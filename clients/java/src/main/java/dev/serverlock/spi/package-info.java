/**
 * What serverlock needs from a client library. The packages {@code jedis} and {@code lettuce} implement it;
 * applications do not use it.
 */
package dev.serverlock.spi;
