<?php

declare(strict_types=1);

namespace Serverlock\Frameworks\Symfony;

use Serverlock\Symfony\ServerlockBundle;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Component\Config\Loader\LoaderInterface;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;

/** An application whose lock.yaml is in its folder. */
final class Kernel extends BaseKernel
{
    public function registerBundles(): iterable
    {
        return [new FrameworkBundle(), new ServerlockBundle()];
    }

    public function registerContainerConfiguration(LoaderInterface $loader): void
    {
        $loader->load(__DIR__ . '/lock.yaml');
    }

    public function getProjectDir(): string
    {
        return (string) getenv('SERVERLOCK_APP');
    }

    public function getCacheDir(): string
    {
        // Each process has its own, because they start at the same time.
        return $this->getProjectDir() . '/cache-' . getmypid();
    }

    public function getLogDir(): string
    {
        return $this->getProjectDir() . '/log-of-symfony';
    }
}
