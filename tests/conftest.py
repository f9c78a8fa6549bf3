"""How thoroughly laws are tried: HYPOTHESIS_PROFILE is `quick` for the fast loop, `thorough` in `make test`."""

import os

from hypothesis import settings

# No deadline: how long one example takes says more about the machine than about the law.
settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("thorough", max_examples=200, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
