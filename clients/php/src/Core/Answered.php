<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The attempt ended with the result of a holder, and holds nothing.
 *
 * @internal
 */
final class Answered extends \RuntimeException
{
    public function __construct(public readonly string $result)
    {
        parent::__construct('the attempt ended with a result');
    }
}
