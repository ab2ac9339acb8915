package dev.serverlock.internal;

import dev.serverlock.Hooks;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.spi.Server;
import java.util.concurrent.Executor;

/**
 * A manager's options.
 *
 * @param timeout how long one reply may take, in nanoseconds
 * @param continuations where the futures of the application complete
 * @param warns whether to log one warning if the module is missing
 */
public record Options(
        Server server,
        Clock clock,
        long timeout,
        Hooks hooks,
        System.Logger log,
        Executor continuations,
        boolean mayUseScripts,
        boolean warns) {}
