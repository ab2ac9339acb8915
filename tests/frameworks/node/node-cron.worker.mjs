// An application with a task that fires every second: node node-cron.worker.mjs PORT [unlocked]

import { Redis } from 'ioredis';
import cron from 'node-cron';
import { Locks } from 'serverlock';
import { LockCoordinator } from 'serverlock/node-cron';
import { say, work } from './work.mjs';

const [port, unlocked] = process.argv.slice(2);
const coordinator = new LockCoordinator(new Locks(new Redis({ port: Number(port) })));
cron.setRunCoordinator(unlocked ? { shouldRun: () => true } : coordinator);
cron.schedule(
  '* * * * * *',
  (context) => work({ begin: context.date.toISOString(), token: coordinator.held(context)?.token }),
  { name: 'report', distributed: true },
);
say({ ready: true });
