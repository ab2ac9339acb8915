// A Nest application with a job that is called every second and should run once in a period of that many seconds:
// node nestjs.worker.js PORT SECONDS [unlocked]

import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { Redis } from 'ioredis';
import { type HeldOnce, Locks } from 'serverlock';
import { LocksModule, OncePerTick } from 'serverlock/nestjs';
import { say, work } from './work.mjs';

const [port, seconds, unlocked] = process.argv.slice(2);
const PERIOD = Number(seconds) * 1000;
const LEASE = 2500;

class Locked {
  @Cron('* * * * * *', { waitForCompletion: true })
  @OncePerTick(PERIOD, { lease: LEASE })
  async report(held: HeldOnce): Promise<void> {
    await work({ begin: held.tick, token: held.token, recovered: held.recovered });
  }
}

class Unlocked {
  @Cron(`*/${seconds} * * * * *`)
  async report(): Promise<void> {
    await work({ begin: Math.round(Date.now() / PERIOD) });
  }
}

@Module({
  imports: [ScheduleModule.forRoot(), LocksModule.forRoot(new Locks(new Redis({ port: Number(port) })))],
  providers: [unlocked ? Unlocked : Locked],
})
class Application {}

await NestFactory.createApplicationContext(Application, { logger: ['error', 'warn'] });
say({ ready: true });
