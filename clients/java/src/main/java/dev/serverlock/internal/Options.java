package dev.serverlock.internal;

import dev.serverlock.Hooks;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.spi.Server;

/**
 * A manager's options.
 *
 * @param timeout how long one reply may take, in nanoseconds
 * @param warns whether to log one warning if the module is missing
 */
public record Options(
        Server server,
        Clock clock,
        long timeout,
        Hooks hooks,
        System.Logger log,
        boolean mayUseScripts,
        boolean warns) {}
