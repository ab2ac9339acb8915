package dev.serverlock

import dev.serverlock.lettuce.LettuceServer
import io.lettuce.core.RedisClient
import io.lettuce.core.RedisURI
import java.nio.file.Files
import java.nio.file.Path
import java.time.Duration
import java.util.concurrent.ThreadLocalRandom
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.BeforeEach
import org.junit.jupiter.api.Test

/** The README's function for coroutines. */
class KotlinTest {
    private lateinit var server: TestServer
    private lateinit var client: RedisClient
    private lateinit var locks: Locks

    @BeforeEach
    fun open() {
        server = TestServer()
        val uri = RedisURI.create("127.0.0.1", server.port)
        client = RedisClient.create()
        locks = Locks.over(LettuceServer.of(client, uri, client.connect(uri)))
    }

    @AfterEach
    fun close() {
        locks.close()
        client.shutdown()
        server.close()
    }

    private fun lock(key: String) = locks.lock(key, LEASE).waiting(Locks.FOREVER)

    @Test
    fun coroutinesTakeTurns() {
        var count = 0
        runBlocking(Dispatchers.Default) {
            List(50) {
                async {
                    lock("turns").withLock {
                        val before = count
                        delay(1)
                        count = before + 1
                    }
                }
            }.awaitAll()
        }
        assertEquals(50, count)
        assertTrue(server.isFree("turns"))
    }

    @Test
    fun anErrorOfTheBodyReleasesTheLock() {
        assertThrows(IllegalStateException::class.java) {
            runBlocking { lock("fails").withLock { error("the work failed") } }
        }
        assertTrue(server.isFree("fails"))
    }

    @Test
    fun aCancelledCoroutineLeavesNothingBehind() = runBlocking(Dispatchers.Default) {
        val holds = CompletableDeferred<Held>()
        val holder = launch {
            lock("cancel").withLock {
                holds.complete(it)
                delay(Long.MAX_VALUE)
            }
        }
        holds.await()
        val waiter = launch { lock("cancel").withLock { throw AssertionError("it was granted") } }
        TestServer.until("it waits") { server.info("cancel", "waiters") == "1" }
        waiter.cancelAndJoin()
        TestServer.until("it does not wait") { server.info("cancel", "waiters") == "0" }
        holder.cancelAndJoin()
        assertTrue(server.isFree("cancel"))
    }

    @Test
    fun manyCancellationsAtRandomMomentsLeaveNothingBehind() = runBlocking(Dispatchers.Default) {
        val all = List(500) { launch { lock("storm").withLock { delay(1) } } }
        for (one in all) {
            delay(ThreadLocalRandom.current().nextLong(2))
            one.cancelAndJoin()
        }
        lock("storm").withLock { assertTrue(it.token() > 0) }
        TestServer.until("the lock is free") { server.isFree("storm") }
    }

    @Test
    fun theReadmeShowsThisFunction() {
        val source = Files.readString(Path.of("src/test/kotlin/dev/serverlock/WithLock.kt"))
        val shown = source.substring(source.indexOf("suspend fun"))
        assertTrue(Files.readString(Path.of("README.md")).contains("```kotlin\n$shown```"))
    }

    private companion object {
        val LEASE: Duration = Duration.ofSeconds(30)
    }
}
