"""Which kube-scheduler to decide like: the one that the operator names, else the one of the API server's version."""

from admission.dra import compatibility
from admission.dra.compatibility import Release, SchedulerProfile

AUTO = "auto"
CHOICES = (AUTO, *Release)
"""What an operator may name."""

NEWEST = compatibility.profile(Release.V1_37)
"""Where nobody names a release and there is no cluster to ask."""


def named(choice: str) -> SchedulerProfile | None:
    """Return the profile of one of CHOICES; None for `auto`."""
    return None if choice == AUTO else compatibility.profile(Release(choice))
