"""The jobs of the benchmarks."""

import os
import time

from conveyor_actors import handler


@handler("noop", queue="bench")
def noop(data):
    return None


def burn(iterations: int) -> int:
    """Fixed CPU work."""
    total = 0
    for number in range(iterations):
        total += number * number % 7
    return total


@handler("burn", queue="bench")
def burn_job(data):
    return burn(data["iterations"])


@handler("hold", queue="bench")
def hold(data):
    """Tells when it has started, and by whom, and then runs until it is killed."""
    with open(data["fifo"], "w") as fifo:
        fifo.write(f"{time.monotonic_ns()} {os.getpid()}\n")
    while True:
        time.sleep(1)
