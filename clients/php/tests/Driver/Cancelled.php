<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** What the signal handler throws. */
final class Cancelled extends \RuntimeException
{
}
