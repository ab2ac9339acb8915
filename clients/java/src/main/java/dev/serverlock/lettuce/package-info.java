/** Lets serverlock use the clients of Lettuce. */
package dev.serverlock.lettuce;
