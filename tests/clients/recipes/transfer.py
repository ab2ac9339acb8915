# Moves the amount if both accounts are still locked by the caller.
MOVE = """
for at = 1, 2 do
    if redis.call('LOCK.CHECK', KEYS[at], ARGV[1]) == 0 then return 0 end
end
redis.call('DECRBY', KEYS[3], ARGV[2])
redis.call('INCRBY', KEYS[4], ARGV[2])
return 1
"""


def transfer(client, source, target, lease_s, decide):
    """Moves what `decide` says of two balances, with both accounts locked meanwhile. False: ask again."""
    accounts = [f"{{bank}}:{name}" for name in (source, target)]
    locks = [f"{account}:lock" for account in accounts]
    token = client.execute_command("LOCK.MACQUIRE", 2, *locks, "EX", lease_s, "WAIT", 4000)
    if token is None:
        return False
    try:
        amount = decide(*(int(balance or 0) for balance in client.mget(accounts)))
        return client.eval(MOVE, 4, *locks, *accounts, token, amount) == 1
    finally:
        client.execute_command("LOCK.MRELEASE", 2, *locks, token)
