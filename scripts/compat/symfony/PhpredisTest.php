<?php

declare(strict_types=1);

namespace Serverlock\Compat;

final class PhpredisTest extends StoreTestCase
{
    protected function client(): object
    {
        $client = new \Redis();
        $client->connect('127.0.0.1', (int) getenv('PORT'));
        return $client;
    }
}
