<?php

declare(strict_types=1);

/** What is thrown here. Where the server cannot be reached, it is RedisException. */
class LockError extends RuntimeException
{
}

/** Somebody else has the lock, after the wait if any; or the wait was cancelled. */
final class LockRefused extends LockError
{
}

/** The lock is not held any more, or not for certain. */
final class LockLost extends LockError
{
}

/** The server does not know LOCK.*, and the fallback is off. */
final class LockUnsupported extends LockError
{
}

/** The server answered what no LOCK.* command answers. */
final class LockReply extends LockError
{
}
