import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.support.CloseableClient;
import io.grpc.stub.StreamObserver;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * etcd's lock over jetcd. Each attempt has a lease of its own, because the lease is what a lock's holder is known by.
 */
final class EtcdLocks implements Lock.Maker {
    /** How long one call may take. */
    private static final long CALL_MS = 3_000;

    private final Client client;
    private final long leaseMs;

    EtcdLocks(List<String> nodes, long leaseMs) throws Exception {
        client = Client.builder()
                .endpoints(nodes.stream().map(at -> "http://" + at).toArray(String[]::new))
                // Notices a node that is cut off. etcd refuses pings that are closer together than 5 s.
                .keepaliveTime(Duration.ofSeconds(6))
                .keepaliveTimeout(Duration.ofSeconds(2))
                .keepaliveWithoutCalls(true)
                .build();
        this.leaseMs = leaseMs;
        // The first call takes seconds on a busy machine.
        client.getKVClient()
                .get(ByteSequence.from("none", StandardCharsets.UTF_8))
                .get();
    }

    @Override
    public Lock mutex(String key) {
        ByteSequence name = ByteSequence.from(key, StandardCharsets.UTF_8);
        return () -> {
            long lease;
            try {
                lease = get(client.getLeaseClient().grant(leaseMs / 1_000), CALL_MS)
                        .getID();
            } catch (ExecutionException | TimeoutException error) {
                return null; // no lease, so no lock
            }
            EtcdGrant grant = new EtcdGrant(lease);
            try {
                grant.key = get(client.getLockClient().lock(name, lease), Lock.WAIT_MS)
                        .getKey();
                // The token: the revision that created the key.
                var found = get(client.getKVClient().get(grant.key), CALL_MS).getKvs();
                if (!found.isEmpty()) {
                    grant.token = found.get(0).getCreateRevision();
                    return grant;
                }
            } catch (ExecutionException | TimeoutException error) {
                // Not granted, if the lease can be revoked.
            }
            grant.end();
            get(client.getLeaseClient().revoke(lease), CALL_MS);
            return null;
        };
    }

    @Override
    public Lock fenced(String key) {
        return mutex(key);
    }

    @Override
    public Lock semaphore(String key, int permits) {
        return null;
    }

    private static <T> T get(CompletableFuture<T> future, long ms) throws Exception {
        try {
            return future.get(ms, TimeUnit.MILLISECONDS);
        } finally {
            future.cancel(true);
        }
    }

    private final class EtcdGrant implements Lock.Grant, StreamObserver<LeaseKeepAliveResponse> {
        private final long lease;
        private final CloseableClient renewal;
        private ByteSequence key;
        private long token;
        private volatile boolean isLost;

        EtcdGrant(long lease) {
            this.lease = lease;
            renewal = client.getLeaseClient().keepAlive(lease, this);
        }

        @Override
        public void onNext(LeaseKeepAliveResponse response) {
            isLost |= response.getTTL() <= 0;
        }

        @Override
        public void onError(Throwable error) {
            isLost = true;
        }

        @Override
        public void onCompleted() {
            isLost = true;
        }

        void end() {
            renewal.close();
        }

        @Override
        public long token() {
            return token;
        }

        @Override
        public boolean isHeld() {
            return !isLost;
        }

        @Override
        public boolean release() throws Exception {
            boolean wasLost = isLost;
            end();
            try {
                get(client.getLockClient().unlock(key), CALL_MS);
            } finally {
                client.getLeaseClient().revoke(lease);
            }
            return !wasLost;
        }
    }
}
