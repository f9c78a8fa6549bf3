"""Which part of its gang a pod is in: what it says itself, or else what its kind of workload calls its parts.

A subgroup is no more than a name inside one gang, so what a pod says is enough: nobody gains a gang, a quota or a
device by it. It matters only for gangs whose subgroups ask to be together.
"""

from admission.api.kubernetes.pods import Pod
from admission.workloads.kinds import catalog


def of(pod: Pod) -> str:
    """Return the name of a pod's subgroup; nothing where it is in none."""
    return next((name for said in catalog.SUBGROUPS if (name := said(pod))), "")
