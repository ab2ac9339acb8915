<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockException;
use Serverlock\Held;

/**
 * One call for a result that many callers need: it computes the result, or gets it from the holder it waited for.
 *
 * @internal
 */
final class SingleFlight
{
    public function __construct(private readonly Engine $engine, private readonly Request $request)
    {
    }

    /**
     * @param callable(Held): string $compute
     * @throws LockException
     */
    public function run(callable $compute): string
    {
        $scope = new Scope($this->engine, $this->request->name);
        $scope->refuseGenerator($compute);
        $value = null;
        $work = function (Held $held) use ($compute, &$value): string {
            $computed = $compute($held);
            return $value = $this->demandString($computed);
        };
        $give = static function (Held $held) use (&$value): bool {
            $held->hold->result = $value;
            try {
                $held->end();
            } catch (LockException) {
                // the value does not need the lock
            }
            return true;
        };
        try {
            return $scope->run(fn (): Held => $this->engine->acquire($this->request), $work, $give);
        } catch (Answered $answered) {
            return $answered->result;
        }
    }

    private function demandString(mixed $value): string
    {
        if (!is_string($value)) {
            $reason = 'compute returned ' . get_debug_type($value) . ', not a string';
            throw new LockBadArgumentException($this->request->name, $reason);
        }
        return $value;
    }
}
