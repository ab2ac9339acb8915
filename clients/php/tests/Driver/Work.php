<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** The error of a body. */
final class Work extends \RuntimeException
{
}
