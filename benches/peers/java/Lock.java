/** One client's lock: acquire returns what release takes. */
interface Lock {
    Object acquire() throws Exception;

    void release(Object held) throws Exception;

    /** The fencing token, or 0 if the lock has none. */
    default long token(Object held) {
        return held instanceof Long token ? token : 0;
    }

    /** What the locks of one contender are made of, in one process. */
    interface Contender {
        Lock lock(String key) throws Exception;

        /** A semaphore; null if the contender has none. */
        default Lock slots(String key, int permits) throws Exception {
            return null;
        }

        /** A shared lock, and the exclusive lock that excludes it; null if the contender has none. */
        default Lock reader(String key) throws Exception {
            return null;
        }

        default Lock writer(String key) throws Exception {
            return lock(key);
        }
    }
}
