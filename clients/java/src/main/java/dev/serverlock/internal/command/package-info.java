/** Builds a lock's commands and reads their replies, with and without the module. */
package dev.serverlock.internal.command;
