"""What threads and asyncio have in common, written once, as coroutines.

asyncio awaits them. Threads run them with `threads.runtime.run`: whatever they await blocks there instead of
suspending, so they finish in one step.
"""
