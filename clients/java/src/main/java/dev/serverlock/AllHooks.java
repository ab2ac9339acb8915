package dev.serverlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** Several hooks as one. All of them are called, and then the first error is thrown, so that it is logged. */
record AllHooks(List<Hooks> all) implements Hooks {
    private static <T> void each(List<T> all, Consumer<T> call) {
        RuntimeException first = null;
        for (T one : all) {
            try {
                call.accept(one);
            } catch (RuntimeException error) {
                first = first == null ? error : first;
            } catch (Error error) { // for example because one of its classes is missing
                first = first == null ? new IllegalStateException(error) : first;
            }
        }
        if (first != null) {
            throw first;
        }
    }

    @Override
    public Watch began(List<String> keys) {
        List<Watch> watches = new ArrayList<>();
        try {
            each(all, hooks -> {
                Watch watch = hooks.began(keys);
                if (watch != null) {
                    watches.add(watch);
                }
            });
        } catch (RuntimeException error) {
            if (watches.isEmpty()) {
                throw error;
            }
            return new AllWatches(watches, error); // thrown later, so that the others hear of the attempt
        }
        return watches.isEmpty() ? null : new AllWatches(watches, null);
    }

    @Override
    public void granted(String key, Duration waited) {
        each(all, hooks -> hooks.granted(key, waited));
    }

    @Override
    public void refused(String key, Duration waited, LockException why) {
        each(all, hooks -> hooks.refused(key, waited, why));
    }

    @Override
    public void lost(String key, Duration held, LockLostException why) {
        each(all, hooks -> hooks.lost(key, held, why));
    }

    @Override
    public void released(String key, Duration held, boolean inTime) {
        each(all, hooks -> hooks.released(key, held, inTime));
    }

    /** early: an error from when the attempt began, or null. */
    private record AllWatches(List<Watch> all, RuntimeException early) implements Watch {
        private void throwEarly() {
            if (early != null) {
                throw early;
            }
        }

        @Override
        public void granted(String command, long token, Duration waited) {
            each(all, watch -> watch.granted(command, token, waited));
            throwEarly();
        }

        @Override
        public void failed(String command, Duration waited, Exception why) {
            each(all, watch -> watch.failed(command, waited, why));
            throwEarly();
        }

        @Override
        public void result(String command, Duration waited) {
            each(all, watch -> watch.result(command, waited));
            throwEarly();
        }

        @Override
        public void ended(End end, Duration held, LockLostException why) {
            each(all, watch -> watch.ended(end, held, why));
        }
    }
}
