"""Back-off between retries: exponential, capped, and jittered so that many clients do not retry together."""

import random


def backoff(failures: int, *, base: float, longest: float) -> float:
    """Return the seconds to wait after n failures in a row: between half and all of base x 2^(n-1), capped."""
    delay = min(longest, base * 2.0 ** min(max(failures - 1, 0), 30))
    return spread(delay / 2, delay)


def spread(least: float, most: float) -> float:
    """Return a uniformly distributed number between two."""
    return random.uniform(least, most)  # noqa: S311 - it spreads load and guards nothing
