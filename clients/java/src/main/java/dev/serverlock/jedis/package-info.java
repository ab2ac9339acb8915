/** Lets serverlock use Jedis clients. */
package dev.serverlock.jedis;
