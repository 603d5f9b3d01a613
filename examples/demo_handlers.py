"""The jobs of the demo: CPU-bound, with a typed payload."""

import msgspec

from conveyor_actors import JobContext, handler


class Search(msgspec.Struct):
    start: int
    count: int = 5_000


@handler("count-primes", queue="demo", attempts=3)
def count_primes(data: Search, job: JobContext) -> dict:
    """How many primes there are in a range: some 50 ms of pure Python."""
    primes = sum(1 for number in range(data.start, data.start + data.count) if is_prime(number))
    return {"start": data.start, "primes": primes, "stalls": job.stalled_count}


def is_prime(number: int) -> bool:
    if number < 2:
        return False
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 1
    return True
