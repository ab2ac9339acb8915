<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** PHP, or the library, cannot do this. */
final class Cannot extends \RuntimeException
{
}
