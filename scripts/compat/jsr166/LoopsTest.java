import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The loops of the JDK's tests of locks, which are programs. They hang if a lock fails. */
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class LoopsTest {
    @Test
    void checkedLock() throws Exception {
        CheckedLockLoops.main(new String[0]);
    }

    @Test
    void simpleReentrantLock() throws Exception {
        SimpleReentrantLockLoops.main(new String[0]);
    }

    @Test
    void cancelledLock() throws Exception {
        CancelledLockLoops.main(new String[0]);
    }

    @Test
    void timeoutLock() throws Exception {
        TimeoutLockLoops.main(new String[0]);
    }

    @Test
    void lockOncePerThread() throws Exception {
        LockOncePerThreadLoops.main(new String[] {"3", "100"}); // replications, locks
    }
}
