"""Objects whose controllers make pods, or make what makes them: as much of them as says how many start together.

They are of many kinds and most are no part of Kubernetes; `workloads.kinds` knows each kind and reads it: how many pods
there are, and which of them their controller makes first. What the pods look like is kept only of those that are held
as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta

UNSERVED = "the API server does not serve it"
"""Why objects of a kind are not seen, where there can be none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Batch Jobs that are alike. jobs: how many; pods: how many each runs at a time; done: how many have succeeded."""

    jobs: int
    pods: int
    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Pods that a controller makes without waiting for any other of them. They are one gang.

    pods: how many run at a time. needed: how many must be there before one of them starts; fewer where the rest may
    come later. parts: what it consists of, by role, where its pods are made by Jobs.
    """

    pods: int
    needed: int
    parts: Mapping[str, Part] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """An object that pods belong to.

    waves: what its controller makes at a time, by name; the first has the name "". roles: the wave of a pod, by what
    the pod is to the object; a role that is not named here is of the wave "". attempt: which try of it this is, where
    the object says so and not what it makes; empty for the first. deadline: how long after its start its controller
    ends all of its pods; None: never. finished: whether it has ended, of kinds that may be held as a whole.
    suspended and templates: whether it makes no pods, and what they would be; of objects that Muster holds as a whole,
    or has held.
    """

    meta: Meta
    waves: Mapping[str, Wave] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    attempt: str = ""
    deadline: timedelta | None = None
    finished: bool = False
    suspended: bool = False
    templates: tuple[PodTemplate, ...] = ()

    def wave_of(self, role: str) -> str:
        """Return the name of the wave of a pod with that role."""
        return self.roles.get(role, "")
