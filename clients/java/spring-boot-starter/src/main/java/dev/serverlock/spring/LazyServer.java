package dev.serverlock.spring;

import dev.serverlock.spi.Cluster;
import dev.serverlock.spi.Node;
import dev.serverlock.spi.Server;
import dev.serverlock.spi.ServerException;
import java.util.function.Supplier;

/** A server whose client connects when it is needed, so that the application starts without the server. */
class LazyServer<S extends Server> implements Server, AutoCloseable {
    private final Supplier<S> connect;
    private final boolean isAsync;
    private final Runnable end;
    private volatile S server;

    /** end: closes the client. */
    LazyServer(Supplier<S> connect, boolean isAsync, Runnable end) {
        this.connect = connect;
        this.isAsync = isAsync;
        this.end = end;
    }

    final S server() {
        S known = server;
        if (known == null) {
            synchronized (this) {
                known = server;
                if (known == null) {
                    try {
                        server = known = connect.get();
                    } catch (RuntimeException error) {
                        throw new ServerException("cannot connect: " + error.getMessage(), error);
                    }
                }
            }
        }
        return known;
    }

    @Override
    public Node node(byte[] key) {
        return server().node(key);
    }

    @Override
    public boolean isAsync() {
        return isAsync;
    }

    @Override
    public void close() {
        end.run();
    }

    /** The same for a cluster. */
    static final class OfCluster extends LazyServer<Cluster> implements Cluster {
        OfCluster(Supplier<Cluster> connect, boolean isAsync, Runnable end) {
            super(connect, isAsync, end);
        }

        @Override
        public Node nodeAt(String address) {
            return server().nodeAt(address);
        }

        @Override
        public void refresh() {
            server().refresh();
        }
    }
}
