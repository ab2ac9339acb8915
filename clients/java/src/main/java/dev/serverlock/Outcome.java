package dev.serverlock;

/** What became of a call for a tick. */
public enum Outcome {
    /** The body ran here. */
    RAN,
    /** Another process is running the tick, or has run it. */
    ELSEWHERE,
    /**
     * The lease of a process that ran expired within this window, perhaps in the middle of its work, and the body ran
     * here.
     */
    RECOVERED
}
