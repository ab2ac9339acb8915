<?php

declare(strict_types=1);

namespace Serverlock\Symfony;

use Symfony\Component\DependencyInjection\Compiler\CompilerPassInterface;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\Lock\Store\StoreFactory as SymfonyLockStoreFactory;
use Symfony\Component\Semaphore\Store\StoreFactory as SymfonySemaphoreStoreFactory;

/** Lets the stores that Symfony's configuration defines come from factories that know `serverlock:`. */
final class StorePass implements CompilerPassInterface
{
    private const FACTORIES = [
        SymfonyLockStoreFactory::class => LockStoreFactory::class,
        SymfonySemaphoreStoreFactory::class => SemaphoreStoreFactory::class,
    ];

    public function process(ContainerBuilder $container): void
    {
        foreach ($container->getDefinitions() as $definition) {
            $factory = $definition->getFactory();
            if (is_array($factory) && is_string($factory[0]) && isset(self::FACTORIES[$factory[0]])) {
                $definition->setFactory([self::FACTORIES[$factory[0]], 'createStore']);
            }
        }
    }
}
