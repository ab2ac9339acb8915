<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** Thrown by the signal handler. */
final class Cancelled extends \RuntimeException
{
}
