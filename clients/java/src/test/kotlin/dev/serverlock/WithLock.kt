package dev.serverlock

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.future.await
import kotlinx.coroutines.withContext

/** Runs the body while the lock is held. No thread waits, and cancelling the coroutine leaves nothing behind. */
suspend fun <T> ServerLock.withLock(body: suspend (Held) -> T): T {
    val pending = acquireAsync()
    val held = try {
        pending.await()
    } catch (cancelled: CancellationException) {
        pending.thenAccept { it.releaseAsync() } // it was granted at that moment
        throw cancelled
    }
    try {
        return body(held).also { held.check() } // throws if the lock was lost
    } finally {
        withContext(NonCancellable) { held.releaseAsync().await() }
    }
}
