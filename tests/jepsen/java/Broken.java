/** A lock that everybody gets at once, always with the same token: the judges must reject it. */
final class Broken implements Lock.Maker {
    @Override
    public Lock mutex(String key) {
        return () -> new Lock.Grant() {
            @Override
            public long token() {
                return 1;
            }

            @Override
            public boolean isHeld() {
                return true;
            }

            @Override
            public boolean release() {
                return true;
            }
        };
    }

    @Override
    public Lock fenced(String key) {
        return mutex(key);
    }

    @Override
    public Lock semaphore(String key, int permits) {
        return mutex(key);
    }
}
