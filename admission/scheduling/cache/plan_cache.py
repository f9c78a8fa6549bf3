"""Answers of the planner that still hold: a gang is planned again only when something has changed for it.

A cycle runs for every change in the cluster, most of which do not concern waiting gangs. Two things are kept:

- *Proofs* that there is no plan. They hold for every equivalent gang, whatever its queue may take, until nodes or
  devices change so that one of its pods may find devices on them (`planner.requeue_hint`). Their messages are those of
  the time of the proof, and are renewed when they are old.
- Other *holds* of single gangs, while the cluster state, the quotas, their usage and the gang's own demand are the
  same. That is sound, since the planner is a function of exactly these. Only holds found before the cycle's first grant
  count.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from admission.api.muster.queues import PlacementMode, Queue
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName
from admission.api.values.reasons import Hold
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering.device_meters import Meters
from admission.dra.planner import requeue_hint
from admission.dra.planner.candidate_nodes import CapacityBound
from admission.dra.requests.gang_request import PodDemand, Topology
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.scheduling.placement.protection import Protections

Question = tuple[tuple[PodDemand, ...], PlacementMode, Topology | None]
"""What a gang asks for: its pods' demands, how it is to be placed, and where together."""

Usage = Mapping[QueueName, Mapping[MeterName, int]]

MOST_STALE = 100
"""Changes that a sentence may miss where something changes all the time; else it is renewed at once."""

MOST_PROOFS = 10_000
"""Proofs that are remembered; all are forgotten when there are more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Basis:
    """What every gang's answer rests on."""

    cluster: ClusterState
    usage: Usage
    queues: Mapping[QueueName, Queue]
    meters: Meters
    steps: int
    protection: Protections

    def same(self, other: "Basis") -> bool:
        """Return whether the planner would answer alike on both."""
        return (
            self.same_rules(other)
            and self.usage == other.usage
            and self.queues == other.queues
            and cluster_state.same(self.cluster, other.cluster)
        )

    def same_rules(self, other: "Basis") -> bool:
        """Return whether what is proved on one is proved on the other, as far as their cluster states are alike."""
        return self.meters is other.meters and self.steps == other.steps and self.protection == other.protection


@dataclass(slots=True, eq=False)
class InfeasibilityProof:
    """Why there is no plan, in general names, and the last cluster state in which that was so.

    pods: the question. capacity_bound: tells whether there is room for all of them at all, where that can be told.
    stale: how often nodes have changed since the sentence was written.
    """

    hold: Hold
    pods: Sequence[PodDemand]
    cluster: ClusterState
    capacity_bound: CapacityBound | None = None
    stale: int = 0


@dataclass(slots=True)
class PlanCache:
    """Holds by gang and how many of its pods were planned, proofs by question, and what they rest on.

    One per leader; started over in every cycle.
    """

    _basis: Basis | None = None
    _holds: dict[tuple[GangUid, int], tuple[Question, Hold]] = field(default_factory=dict)
    _is_valid: bool = False
    _proofs: dict[Hashable, InfeasibilityProof] = field(default_factory=dict)
    _changed: dict[tuple[object, object], frozenset[NodeName] | None] = field(default_factory=dict)
    """The nodes that changed between two cluster states, by their tokens; those of this cycle."""

    def begin(self, basis: Basis) -> None:
        """Start a cycle: forget everything when what it rested on has changed."""
        if self._basis is None or not self._basis.same(basis):
            self._holds.clear()
        if self._basis is None or not self._basis.same_rules(basis) or len(self._proofs) > MOST_PROOFS:
            self._proofs.clear()
        elif self._basis.cluster is basis.cluster or cluster_state.same(self._basis.cluster, basis.cluster):
            self._renew(0)
        else:
            self._renew(MOST_STALE)
        self._changed.clear()
        self._basis = basis
        self._is_valid = True

    def end(self) -> None:
        """Say that a gang was granted: those that come after it see another cluster state."""
        self._is_valid = False

    def hold(self, gang: GangUid, question: Question) -> Hold | None:
        """Return the hold that still stands for a gang that asks for just this."""
        known = self._holds.get((gang, len(question[0]))) if self._is_valid else None
        return known[1] if known is not None and known[0] == question else None

    def keep(self, gang: GangUid, question: Question, hold: Hold) -> None:
        """Remember a hold that the planner has found."""
        if self._is_valid:
            self._holds[gang, len(question[0])] = (question, hold)

    def proof(self, key: Hashable, cluster: ClusterState, selectors: Selectors) -> InfeasibilityProof | None:
        """Return why there is still no plan for those who ask for this; None where there may be one."""
        found = self._proofs.get(key)
        if found is None or found.cluster is cluster:
            return found
        tokens = found.cluster.token, cluster.token
        if tokens not in self._changed:
            self._changed[tokens] = requeue_hint.changed(found.cluster, cluster)
        nodes = self._changed[tokens]
        # Where everything may be different, the classes say, so may be what the question means.
        is_lacking = nodes is not None and found.capacity_bound is not None and found.capacity_bound.is_felt(cluster)
        if not is_lacking and requeue_hint.may_help(found.pods, nodes, cluster, selectors=selectors):
            del self._proofs[key]
            return None
        found.cluster, found.stale = cluster, found.stale + bool(nodes)
        return found

    def forget_changes(self) -> None:
        """Forget between which cluster states nodes changed, where one follows the other and no cycle begins."""
        self._changed.clear()

    @property
    def is_stale(self) -> bool:
        """Whether a sentence is to be renewed as soon as nothing else changes."""
        return any(proof.stale for proof in self._proofs.values())

    def _renew(self, most: int) -> None:
        """Forget one proof whose sentence is too old, so that it is found again."""
        key = next((key for key, proof in self._proofs.items() if proof.stale > most), None)
        if key is not None:
            del self._proofs[key]

    def prove(self, key: Hashable, proof: InfeasibilityProof) -> None:
        """Remember that there is no plan."""
        self._proofs[key] = proof
