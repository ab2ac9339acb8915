/** Builds the commands of a lock and reads their replies, with and without the module. */
package dev.serverlock.internal.command;
