/** Runs the scenarios of clients/suite. */
package dev.serverlock.suite;
