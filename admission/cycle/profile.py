"""The profile of the kube-scheduler to predict: the operator's choice, else that of the API server's version."""

from admission.dra import compatibility
from admission.dra.compatibility import Release, SchedulerProfile

AUTO = "auto"
CHOICES = (AUTO, *Release)
"""The values that an operator may choose."""

NEWEST = compatibility.profile(Release.V1_37)
"""The default without a choice and without a cluster."""


def named(choice: str) -> SchedulerProfile | None:
    """Return the profile of one of CHOICES; None for `auto`."""
    return None if choice == AUTO else compatibility.profile(Release(choice))
