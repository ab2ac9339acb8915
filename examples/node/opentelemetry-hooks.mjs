/** Locks as OpenTelemetry metrics: new Locks(client, { hooks: telemetry() }). Needs @opentelemetry/api. */
import { metrics } from '@opentelemetry/api';

/** Keys are not among the attributes, because there can be any number of them. */
export function telemetry() {
  const meter = metrics.getMeter('serverlock');
  const waited = meter.createHistogram('lock.wait.duration', { unit: 'ms', description: 'How long attempts took' });
  const held = meter.createHistogram('lock.hold.duration', { unit: 'ms', description: 'How long locks were held' });
  const lost = meter.createCounter('lock.lost', { description: 'Locks that were lost while they were held' });
  return {
    granted: (key, ms) => waited.record(ms, { 'lock.outcome': 'granted' }),
    refused: (key, ms, error) => waited.record(ms, { 'lock.outcome': error.code }),
    lost: () => lost.add(1),
    released: (key, ms, inTime) => held.record(ms, { 'lock.outcome': inTime ? 'in_time' : 'too_late' }),
  };
}
