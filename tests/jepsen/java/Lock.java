/** A lock or a semaphore of one system, as the workloads use it. */
interface Lock {
    /** How long an attempt waits. */
    long WAIT_MS = 5_000;

    /** Waits for a grant. Returns null if nothing was granted, and throws if that is unknown. */
    Grant acquire() throws Exception;

    interface Grant {
        /** The fencing token, or 0 if the lock has none. */
        default long token() {
            return 0;
        }

        /** What the library says; the client asks before each step of its work. */
        boolean isHeld() throws Exception;

        /** Returns false if the library says that the lock was lost before, and throws if that is unknown. */
        boolean release() throws Exception;
    }

    /** The locks of one system, in one client process. */
    interface Maker {
        Lock mutex(String key) throws Exception;

        Lock fenced(String key) throws Exception;

        /** Null if the system's client has none. */
        Lock semaphore(String key, int permits) throws Exception;
    }
}
