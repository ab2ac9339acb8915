// The ways in which a storm cancels its attempts.

const batches = new Map();

/** Each returns a signal that aborts at that moment, and what to do when the attempt has ended. */
export const STORMS = {
  abort(at) {
    const given = new AbortController();
    const timer = setTimeout(() => given.abort(), at - performance.now());
    return [given.signal, () => clearTimeout(timer)];
  },
  timeout: (at) => [AbortSignal.timeout(Math.max(0, Math.round(at - performance.now()))), () => undefined],
  /** All attempts that end in the same 5 ms share a signal. */
  shared(at) {
    const batch = Math.ceil(at / 5);
    if (!batches.has(batch)) {
      const given = new AbortController();
      batches.set(batch, given.signal);
      setTimeout(
        () => {
          batches.delete(batch);
          given.abort();
        },
        batch * 5 - performance.now(),
      );
    }
    return [batches.get(batch), () => undefined];
  },
};
