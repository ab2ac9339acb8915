<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** Unwinds the scope in a child. */
final class Forked extends \RuntimeException
{
}
