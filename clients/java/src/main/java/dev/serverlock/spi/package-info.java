/**
 * What serverlock needs from a client library. The packages {@code jedis}, {@code lettuce} and {@code testing}
 * implement it; applications do not use it.
 */
package dev.serverlock.spi;
