package dev.serverlock.server;

import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.List;
import java.util.zip.GZIPInputStream;

/** Where the installed server and the module are. */
final class Programs {
    private static final String MODULE = "libredis_lock.so";
    private static final int BLOCK = 512;

    private Programs() {}

    static String server() throws IOException {
        String named = System.getenv("REDIS_SERVER");
        if (named != null && !named.isEmpty()) return named;
        for (String name : List.of("redis-server", "valkey-server")) {
            for (String folder : System.getenv().getOrDefault("PATH", "").split(File.pathSeparator)) {
                Path program = Path.of(folder, name);
                if (Files.isExecutable(program)) return program.toString();
            }
        }
        throw new IOException(
                "neither redis-server nor valkey-server is in the PATH; REDIS_SERVER can name another program");
    }

    static Path module(Path folder) throws IOException {
        return module(System.getenv("REDIS_LOCK_MODULE"), folder);
    }

    /** Copies the module into the folder, executable: servers refuse any other. */
    static Path module(String named, Path folder) throws IOException {
        if (named == null || named.isEmpty()) {
            throw new IOException("REDIS_LOCK_MODULE has to name " + MODULE + ", or a release archive that contains it");
        }
        Path copy = folder.resolve(MODULE);
        if (named.endsWith(".tar.gz")) {
            try (InputStream archive = new GZIPInputStream(Files.newInputStream(Path.of(named)))) {
                Files.write(copy, inArchive(archive, named));
            }
        } else {
            Files.copy(Path.of(named), copy);
        }
        if (!copy.toFile().setExecutable(true)) throw new IOException("cannot make " + copy + " executable");
        return copy;
    }

    /** In a tar file, a block before each file has its name (100 bytes) and at 124 its size (octal). */
    private static byte[] inArchive(InputStream archive, String named) throws IOException {
        for (byte[] header = archive.readNBytes(BLOCK); header.length == BLOCK; header = archive.readNBytes(BLOCK)) {
            String name = text(header, 0, 100);
            if (name.isEmpty()) break;
            String octal = text(header, 124, 12);
            int size = octal.isEmpty() ? 0 : Integer.parseInt(octal, 8);
            byte[] content = archive.readNBytes(size);
            if (content.length < size) throw new EOFException(named + " ends in the middle of " + name);
            if (name.endsWith("/" + MODULE)) return content;
            archive.skipNBytes((BLOCK - size % BLOCK) % BLOCK);
        }
        throw new NoSuchFileException(named + " does not contain " + MODULE);
    }

    private static String text(byte[] block, int from, int length) {
        String field = new String(block, from, length, StandardCharsets.US_ASCII);
        int end = field.indexOf('\0');
        return (end < 0 ? field : field.substring(0, end)).strip();
    }
}
