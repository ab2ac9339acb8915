<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The caller no longer wants the lock.
 *
 * @internal
 */
final class GivenUp extends \RuntimeException
{
}
