/** Lets serverlock use the clients of Jedis. */
package dev.serverlock.jedis;
