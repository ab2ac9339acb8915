from serverlock import LockLost, LockTimeout

# Moves the amount if both accounts are still locked by the caller.
MOVE = """
for at = 1, 2 do
    if redis.call('LOCK.CHECK', KEYS[at], ARGV[1]) == 0 then return 0 end
end
redis.call('DECRBY', KEYS[3], ARGV[2])
redis.call('INCRBY', KEYS[4], ARGV[2])
return 1
"""


def transfer(client, locks, source, target, most_s, decide):
    """Moves the amount that `decide` computes from two balances, with both accounts locked. False: try again."""
    accounts = [f"{{bank}}:{name}" for name in (source, target)]
    keys = [f"{account}:lock" for account in accounts]
    try:
        with locks.all_of(keys, min(5, most_s), wait=10, max_hold=most_s) as held:
            amount = decide(*(int(balance or 0) for balance in client.mget(accounts)))
            return client.eval(MOVE, 4, *keys, *accounts, held.token, amount) == 1
    except (LockTimeout, LockLost):
        return False
