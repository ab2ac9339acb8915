"""The interfaces of other lock libraries, over LOCK.*.

`redis_py.Lock` stands in for `redis.lock.Lock`, `redis_py_asyncio.Lock` for `redis.asyncio.lock.Lock`.
"""
