<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** The error thrown by a body. */
final class Work extends \RuntimeException
{
}
