"""The leader's writes that its view does not show yet: claims, opened gates, evictions, resumed workloads.

A view follows the cluster by watches and is late by moments. A cycle that did not know the writes of the one before
would repeat them, or give the same devices to another gang. kube-scheduler has an assume cache for the same reason.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Merged, Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, Uid
from admission.errors import MusterError
from admission.incremental import Derived
from admission.scheduling.capacity import scale_down
from admission.scheduling.placement.mode import Chosen
from admission.workloads import suspendable


@dataclass(slots=True)
class InFlight:
    """The writes that are not observed yet. One per leader.

    Rule: a write is assumed when the API server has accepted it, and dropped when the view shows it or the object is
    deleted.
    """

    _claims: dict[str, Claim] = field(default_factory=dict)
    """By `namespace/name`, as the API server returned them."""
    _with_assumed: Merged[str, Claim] | None = None
    """The claims of snapshots with these; None until there was one."""
    _opened: set[Uid] = field(default_factory=set)
    """Pods whose gate was opened."""
    _leaving: set[Uid] = field(default_factory=set)
    """Pods that were evicted."""
    _resumed: dict[Uid, Job | Parent] = field(default_factory=dict)
    """Workloads that were resumed, as they were observed then."""
    _modes: dict[GangUid, Chosen] = field(default_factory=dict)
    """The placement modes of gangs that this leader has admitted, with the reason."""

    @property
    def opened(self) -> Collection[Uid]:
        return self._opened

    @property
    def leaving(self) -> Collection[Uid]:
        return self._leaving

    @property
    def modes(self) -> Mapping[GangUid, Chosen]:
        return self._modes

    def assume_claim(self, claim: Claim | None) -> None:
        """Assume a claim as the API server returned it; None for one that was deleted."""
        if claim is not None:
            self._claims[claim.meta.key] = claim

    def assume_opened(self, pod: Pod) -> None:
        self._opened.add(pod.meta.uid)

    def assume_leaving(self, pods: Iterable[Pod]) -> None:
        """Assume evictions; pods that are only expected are left out."""
        self._leaving.update(pod.meta.uid for pod in pods if not names.is_expected(pod.meta.uid))

    def assume_resumed(self, uid: Uid, seen: Job | Parent) -> None:
        """Assume that a workload is resumed. seen: the object as observed before."""
        self._resumed[uid] = seen

    def is_resumed(self, uid: Uid, seen: Job | Parent) -> bool:
        """Return whether a workload was resumed and is still observed as before."""
        return self._resumed.get(uid) is seen

    def choose(self, gang: GangUid, mode: Chosen) -> None:
        self._modes[gang] = mode

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the assumed claims that it does not show yet; drop those that it shows."""
        self._claims = {
            key: claim
            for key, claim in self._claims.items()
            if (seen := snapshot.claims.get(key)) is not None and _is_behind(seen.meta, claim.meta)
        }
        if self._claims and self._with_assumed is None:
            self._with_assumed = Merged()
        if self._with_assumed is None:
            return snapshot
        # Also once the view shows all: whoever follows the claims then goes on from what it has.
        return replace(snapshot, claims=self._with_assumed.update(snapshot.claims, dict(self._claims)))

    def forget_seen_pods(self, pods: Mapping[Uid, Pod]) -> None:
        """Drop the pods whose writes the view shows."""
        self._leaving = {uid for uid in self._leaving if uid in pods and pods[uid].meta.deleted is None}
        self._opened = {uid for uid in self._opened if (pod := pods.get(uid)) is not None and pod.gated}

    def forget_seen_workloads(self, snapshot: Snapshot) -> None:
        self._resumed = {uid: seen for uid, seen in self._resumed.items() if suspendable.is_current(seen, snapshot)}

    def forget_released(self, placements: Mapping[GangUid, Placement]) -> None:
        """Drop the modes of gangs that are no longer in the ledger."""
        self._modes = {gang: mode for gang, mode in self._modes.items() if gang in placements}


@dataclass(slots=True)
class RequestState:
    """The requests that this leader has made and does not see yet, and what it could not make. One per leader.

    Rule: a request is made again once it was seen and is gone; `forget` drops what was seen, and what nobody needs.
    PodTemplates without a request are looked for by each leader once, and when nobody needs a request any more of which
    a write has failed.
    """

    _made: set[str] = field(default_factory=set)
    _troubles: dict[str, str] = field(default_factory=dict)
    _is_cleanup_due: bool = True

    @property
    def made(self) -> Collection[str]:
        return self._made

    @property
    def has_any(self) -> bool:
        """Return whether anything is remembered."""
        return bool(self._made or self._troubles)

    @property
    def is_cleanup_due(self) -> bool:
        """Return whether PodTemplates without a request may have been left behind."""
        return self._is_cleanup_due

    def note_swept(self) -> None:
        self._is_cleanup_due = False

    def trouble(self, key: str) -> str:
        """Return why a request could not be made; empty if it was, or is not yet tried."""
        return self._troubles.get(key, "")

    def note_made(self, key: str) -> None:
        self._made.add(key)
        self._troubles.pop(key, None)

    def note_trouble(self, key: str, error: MusterError) -> None:
        self._troubles[key] = str(error)

    def forget(self, seen: Collection[str], needed: Collection[str]) -> None:
        """Drop what the view shows, and what belongs to reservations that are over."""
        self._made = {key for key in self._made if key not in seen and key in needed}
        self._is_cleanup_due = self._is_cleanup_due or any(key not in needed for key in self._troubles)
        self._troubles = {key: why for key, why in self._troubles.items() if key in needed}


@dataclass(slots=True)
class ScaleDownState:
    """Which nodes have annotations of Muster, as the view shows them. One per leader.

    Rule: only `ScaleDown` changes it.
    """

    marked: Derived[NodeName, Node, Node] = field(default_factory=lambda: Derived(_marked))
    refused_until: datetime | None = None


def _marked(_name: NodeName, node: Node) -> Node | None:
    return node if scale_down.is_marked(node) else None


def _is_behind(seen: Meta, written: Meta) -> bool:
    """Return whether `seen` is an older version of `written`. Kubernetes guarantees ordered versions since 1.35."""
    if seen.uid != written.uid:
        return False
    versions = seen.resource_version, written.resource_version
    return all(map(str.isdecimal, versions)) and int(versions[0]) < int(versions[1])
