package dev.serverlock.server;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;

final class LockServerTest {
    @RegisterExtension
    static final LockServer SERVER = new LockServer("--databases", "3");

    /** The first line of the reply to a command. */
    private static String call(int port, String command) throws IOException {
        try (Socket connection = new Socket(InetAddress.getLoopbackAddress(), port)) {
            connection.getOutputStream().write((command + "\r\n").getBytes(StandardCharsets.US_ASCII));
            var input = new InputStreamReader(connection.getInputStream(), StandardCharsets.US_ASCII);
            return new BufferedReader(input).readLine();
        }
    }

    @RepeatedTest(2)
    void eachTestHasAnEmptyDatabase() throws IOException {
        assertEquals(":0", call(SERVER.port(), "EXISTS k"));
        String reply = call(SERVER.port(), "LOCK.ACQUIRE k EX 60 ID 1");
        assertTrue(reply.startsWith(":"), reply);
        assertTrue(call(SERVER.port(), "SELECT 3").startsWith("-ERR"));
    }

    @Test
    void aServerEnds() throws IOException, InterruptedException {
        var server = new LockServer();
        server.start();
        assertEquals("+PONG", call(server.port(), "PING"));
        server.stop();
        assertThrows(ConnectException.class, () -> call(server.port(), "PING"));
        server.stop();
    }

    @Test
    void aServerThatFailsShowsItsLog() {
        var error = assertThrows(IllegalStateException.class, new LockServer("--there-is-no-such-option", "1")::start);
        assertTrue(error.getMessage().contains("there-is-no-such-option"), error.getMessage());
    }

    @Test
    void aMissingModuleIsNamed(@TempDir Path folder) throws IOException {
        assertTrue(assertThrows(IOException.class, () -> Programs.module("", folder))
                .getMessage()
                .contains("REDIS_LOCK_MODULE"));
        Path empty = Files.createFile(folder.resolve("empty.tar.gz"));
        assertThrows(IOException.class, () -> Programs.module(empty.toString(), folder));
    }
}
