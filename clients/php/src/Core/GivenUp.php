<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The caller wants the lock no longer.
 *
 * @internal
 */
final class GivenUp extends \RuntimeException
{
}
