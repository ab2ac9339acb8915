<?php

declare(strict_types=1);

namespace Serverlock\Symfony;

use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\HttpKernel\Bundle\Bundle;

/** Lets `framework.lock` and `framework.semaphore` take the DSN `serverlock://`. */
final class ServerlockBundle extends Bundle
{
    public function build(ContainerBuilder $container): void
    {
        $container->addCompilerPass(new StorePass());
    }
}
