"""Workloads whose controllers make pods, directly or by other objects: how many pods start together.

Most of their kinds are not part of Kubernetes. `workloads.kinds` decodes each kind: the number of its pods, and which
of them the controller makes first. Pod templates are kept only for workloads that are held as a whole, and of pods that
a controller makes when others run or have ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import PodClaim

UNSERVED = "the API server does not serve it"
"""The reason why a kind has no objects in the store, if the API server does not serve it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Equal batch Jobs. jobs: their number; pods: how many each runs at a time; done: how many have succeeded."""

    jobs: int
    pods: int
    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Pods that a controller makes without waiting for others of them to run. They are one gang.

    pods: how many run at a time. needed: how many must exist before one of them starts; fewer than `pods` where the
    rest may start later. parts: its Jobs by role, if Jobs make its pods. follows: whether its pods follow those of the
    first wave into their domains of nodes, and have the same template.
    """

    pods: int
    needed: int
    parts: Mapping[str, Part] = field(default_factory=dict)
    follows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterWave:
    """A wave after the first one, as if it waited for nothing. roles: of its pods.

    running_roles: the roles that have to be ready before it and run on, as far as their pods are among those of the
    templates. templates, waves and waves_of: those of a workload that has these roles alone, as `templates`, `waves`
    and `roles` of a Parent.
    """

    roles: tuple[str, ...]
    templates: tuple[PodTemplate, ...]
    running_roles: tuple[str, ...] = ()
    waves: Mapping[str, Wave] = field(default_factory=dict)
    waves_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A workload to which pods belong.

    waves: the pods that its controller makes together, by wave; the first wave has the name "". roles: the name of the
    wave for a pod's role in the workload; a role that is missing here belongs to the wave "". attempt: of the workload,
    if the workload itself records it and its pods do not; empty for the first. deadline: the time after its start when
    its controller ends all of its pods; None: never. finished: whether it has ended, for kinds that can be held as a
    whole. suspended and templates: whether it makes no pods now, and its pod templates; only for workloads that Muster
    holds as a whole, or has held. later: the waves after the first one, where templates tell their pods. claims and
    generated_claims: of a PodGroup of Kubernetes, as a pod has them; its pods share them. constrained: whether a
    PodGroup of Kubernetes has schedulingConstraints, which are not simulated.
    """

    meta: Meta
    waves: Mapping[str, Wave] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    attempt: str = ""
    deadline: timedelta | None = None
    finished: bool = False
    suspended: bool = False
    templates: tuple[PodTemplate, ...] = ()
    later: tuple[LaterWave, ...] = ()
    claims: tuple[PodClaim, ...] = ()
    generated_claims: Mapping[str, str] = field(default_factory=dict)
    constrained: bool = False

    def wave_of(self, role: str) -> str:
        """Return the name of the wave of a pod with that role."""
        return self.roles.get(role, "")
