<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** PHP, or the library, has no way to do this. */
final class Cannot extends \RuntimeException
{
}
