/** Lets serverlock use Lettuce clients. */
package dev.serverlock.lettuce;
