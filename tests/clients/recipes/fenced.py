# In the Redis that has the lock: only while the lock is held.
WRITE = """
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
return 1
"""


def write_redis(client, lock, token, key, value):
    return client.eval(WRITE, 2, lock, key, token, value) == 1


# In another store: only if no later holder has written. CREATE TABLE item (id PRIMARY KEY, value, token)
UPSERT = """
INSERT INTO item (id, value, token) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET value = excluded.value, token = excluded.token WHERE item.token <= excluded.token
"""


def write_sql(db, token, item, value):
    with db:
        return db.execute(UPSERT, (item, value, token)).rowcount == 1
