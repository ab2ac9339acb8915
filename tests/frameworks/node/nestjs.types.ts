import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { Cron, Interval } from '@nestjs/schedule';
import { Redis } from 'ioredis';
import { type HeldOnce, Locks } from 'serverlock';
import { LocksModule, OncePerTick } from 'serverlock/nestjs';

export class Reports {
  constructor(readonly locks: Locks) {}

  @Cron('30 * * * *')
  @OncePerTick(3_600_000, { offset: 1_800_000, key: 'hourly', lease: 60_000, onLost: (held) => console.log(held.tick) })
  async hourly(held: HeldOnce): Promise<number> {
    held.check();
    return held.token;
  }

  @OncePerTick(60_000)
  @Interval(20_000)
  plain(): void {}

  // @ts-expect-error: there is no such option
  @OncePerTick(60_000, { wait: 5 })
  wrong(): void {}
}

@Module({
  imports: [
    LocksModule.forRootAsync({ inject: [Redis], useFactory: (redis: Redis) => new Locks(redis) }),
    LocksModule.forRoot(new Locks(new Redis())),
  ],
  providers: [Reports],
})
export class Application {}
