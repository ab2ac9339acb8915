/** Starts a server, or stops it, and sets `SERVERLOCK_URL` in between. */
export default function run(): Promise<unknown>;
