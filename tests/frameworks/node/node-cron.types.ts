import { Redis } from 'ioredis';
import cron, { type RunCoordinator } from 'node-cron';
import { type Held, Locks } from 'serverlock';
import { type CoordinatorOptions, LockCoordinator } from 'serverlock/node-cron';

const locks = new Locks(new Redis());
const plain: RunCoordinator = new LockCoordinator(locks);
const options: CoordinatorOptions = {
  prefix: 'app:',
  maxHold: 3_600_000,
  onLost: (key, error) => console.log(key, error.code),
};
const coordinator = new LockCoordinator(locks, options);
cron.setRunCoordinator(plain);
// @ts-expect-error: a manager is not a coordinator
cron.setRunCoordinator(locks);
cron.schedule(
  '0 3 * * *',
  (context) => {
    const held: Held | undefined = coordinator.held(context);
    held?.check();
  },
  { name: 'nightly', distributed: true, runCoordinator: coordinator },
);
