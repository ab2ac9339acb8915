package dev.serverlock.spring;

import dev.serverlock.Locks;

/** Changes how the {@link Locks} bean is built. Declare beans of this type. */
@FunctionalInterface
public interface LocksBuilderCustomizer {
    /**
     * Sets options. The properties and the {@link dev.serverlock.Hooks} beans have been applied before.
     *
     * @param builder the builder of the locks
     */
    void customize(Locks.Builder builder);
}
