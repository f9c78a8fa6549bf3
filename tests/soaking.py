"""How many examples a long law is tried with: few in the fast loop and `make test`, as many as asked in `make soak`."""

from hypothesis import settings

PROFILE = "soak"


def examples(most: int) -> int:
    """Return how many examples to try; most: outside `make soak`."""
    asked = settings().max_examples
    return asked if settings.get_current_profile_name() == PROFILE else min(asked, most)
