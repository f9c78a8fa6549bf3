"""How many examples a long law is tried with: few in the fast loop and `make test`, as many as asked in `make soak`."""

from hypothesis import settings

PROFILE = "soak"


def is_on() -> bool:
    """Tell whether this is a run of `make soak`."""
    return settings.get_current_profile_name() == PROFILE


def examples(most: int) -> int:
    """Return how many examples to try; most: outside `make soak`."""
    asked = settings().max_examples
    return asked if is_on() else min(asked, most)
