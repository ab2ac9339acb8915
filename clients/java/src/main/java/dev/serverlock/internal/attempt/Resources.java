package dev.serverlock.internal.attempt;

import dev.serverlock.internal.command.Module;
import dev.serverlock.internal.command.Portable;
import dev.serverlock.internal.connection.Blocking;
import dev.serverlock.internal.connection.Connections;
import dev.serverlock.internal.connection.Subscription;
import dev.serverlock.internal.hold.Debts;
import dev.serverlock.internal.hold.Sessions;
import dev.serverlock.internal.runtime.Context;
import dev.serverlock.internal.wire.Router;

/** What one manager's attempts share: connections, ways to wait, and background work. */
public record Resources(
        Context context,
        Router router,
        Module module,
        Portable portable,
        Subscription subscription,
        Connections connections,
        Blocking blocking,
        Sessions sessions,
        Debts debts) {}
