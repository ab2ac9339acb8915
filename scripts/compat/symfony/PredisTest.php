<?php

declare(strict_types=1);

namespace Serverlock\Compat;

final class PredisTest extends StoreTestCase
{
    protected function client(): object
    {
        return new \Predis\Client(['host' => '127.0.0.1', 'port' => (int) getenv('PORT')]);
    }
}
