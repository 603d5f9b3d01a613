"""A module of handlers that does to signals and event loops what some libraries do."""

import asyncio
import signal

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])


async def _set_up():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)


asyncio.run(_set_up())
