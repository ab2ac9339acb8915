"""What locks with threads and with asyncio have in common. It is written once, as coroutines.

asyncio awaits them. Threads run them with `threads.runtime.run`: everything that they await there blocks instead, so
they end at the first step.
"""
