/** Numbers that two threads see. */

const float = new Float64Array(1);
const bits = new BigInt64Array(float.buffer);

const bitsOf = (value: number): bigint => {
  float[0] = value;
  return bits[0] as bigint;
};

const numberOf = (from: bigint): number => {
  bits[0] = from;
  return float[0] as number;
};

export class Shared {
  readonly #numbers: BigInt64Array;

  /** The memory of another thread's numbers, or how many new ones, which are 0. */
  constructor(memory: SharedArrayBuffer | number) {
    this.#numbers = new BigInt64Array(typeof memory === 'number' ? new SharedArrayBuffer(8 * memory) : memory);
  }

  get memory(): SharedArrayBuffer {
    return this.#numbers.buffer as SharedArrayBuffer;
  }

  get(at: number): number {
    return numberOf(Atomics.load(this.#numbers, at));
  }

  set(at: number, value: number): void {
    Atomics.store(this.#numbers, at, bitsOf(value));
  }

  /** Sets a number that only grows. Returns the larger of its value and this one. */
  raise(at: number, value: number): number {
    for (;;) {
      const before = Atomics.load(this.#numbers, at);
      if (numberOf(before) >= value) return numberOf(before);
      if (Atomics.compareExchange(this.#numbers, at, before, bitsOf(value)) === before) return value;
    }
  }
}
