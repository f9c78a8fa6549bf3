"""The cache of the planner's answers: a gang is planned again only after a change that may help it.

A cycle runs for every change in the cluster, most of which do not concern pending gangs. Two things are kept:

- *Proofs* that there is no plan. They hold for every equivalent gang, whatever its quota, until nodes or devices change
  so that one of its pods may get devices on them (`planner.requeue_hint`). A message is as of the time of the proof; an
  old one is renewed.
- Other *holds* of single gangs, while the cluster state, the quotas, their usage and the gang's own demand are the
  same. That is sound, since the planner is a function of exactly these. Only holds found before the cycle's first grant
  count.

Neither is a declaration over `admission.incremental`: a proof survives changes of its input, the cluster state, as long
as these cannot help, and a hold is compared by the value of quotas and usage, which are other objects in each cycle.
The law is tested in `tests/property/test_cycles.py`.
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
"""What a gang requests: its pods' demands, its placement mode and its topology."""

Usage = Mapping[QueueName, Mapping[MeterName, int]]

MOST_STALE = 100
"""How many changes of nodes a message may miss while the cluster changes in every cycle; else it is renewed at once."""

MOST_PROOFS = 10_000
"""The most proofs that are kept; if there are more, all are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Basis:
    """The inputs that the answers for all gangs depend on."""

    cluster: ClusterState
    usage: Usage
    queues: Mapping[QueueName, Queue]
    meters: Meters
    steps: int
    protection: Protections

    def same(self, other: "Basis") -> bool:
        """Return whether the planner gives the same answers on both."""
        return (
            self.same_rules(other)
            and self.usage == other.usage
            and self.queues == other.queues
            and cluster_state.same(self.cluster, other.cluster)
        )

    def same_rules(self, other: "Basis") -> bool:
        """Return whether a proof on one holds on the other, cluster states aside."""
        return self.meters is other.meters and self.steps == other.steps and self.protection == other.protection


@dataclass(slots=True, eq=False)
class InfeasibilityProof:
    """A proof that there is no plan, in numbered names, and the last cluster state in which it held.

    pods: the question. capacity_bound: the proof by counting, if there is one. stale: how often nodes have changed
    since the message was written.
    """

    hold: Hold
    pods: Sequence[PodDemand]
    cluster: ClusterState
    capacity_bound: CapacityBound | None = None
    stale: int = 0


@dataclass(slots=True)
class PlanCache:
    """Holds by gang and number of planned pods, proofs by question, and their inputs. One per leader.

    Rule: only this class changes its fields. `begin` is called in every cycle, and `end` at its first grant.
    """

    _basis: Basis | None = None
    _holds: dict[tuple[GangUid, int, Hashable], tuple[Question, Hold]] = field(default_factory=dict)
    _is_valid: bool = False
    _proofs: dict[Hashable, InfeasibilityProof] = field(default_factory=dict)
    _changed: dict[tuple[object, object], frozenset[NodeName] | None] = field(default_factory=dict)
    """The nodes that changed between two cluster states, by their tokens; kept for one cycle."""

    def begin(self, basis: Basis) -> None:
        """Start a cycle: drop answers whose inputs have changed."""
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
        """Record a grant: later gangs of the cycle see another cluster state, so no holds are kept or used."""
        self._is_valid = False

    def hold(self, gang: GangUid, question: Question, terms: Hashable = None) -> Hold | None:
        """Return the hold that still stands for a gang with this question. terms: what its quota was asked for."""
        known = self._holds.get((gang, len(question[0]), terms)) if self._is_valid else None
        return known[1] if known is not None and known[0] == question else None

    def keep(self, gang: GangUid, question: Question, hold: Hold, terms: Hashable = None) -> None:
        """Keep a hold of the planner."""
        if self._is_valid:
            self._holds[gang, len(question[0]), terms] = (question, hold)

    def proof(self, key: Hashable, cluster: ClusterState, selectors: Selectors) -> InfeasibilityProof | None:
        """Return the proof that there is still no plan for this key; None if there may be one."""
        found = self._proofs.get(key)
        if found is None or found.cluster is cluster:
            return found
        tokens = found.cluster.token, cluster.token
        if tokens not in self._changed:
            self._changed[tokens] = requeue_hint.changed(found.cluster, cluster)
        nodes = self._changed[tokens]
        # nodes is None if everything may differ, classes included; then the bound's question may differ as well.
        is_lacking = nodes is not None and found.capacity_bound is not None and found.capacity_bound.is_felt(cluster)
        if not is_lacking and (
            requeue_hint.may_help_volumes(found.cluster, cluster, found.pods)
            or requeue_hint.may_help(found.pods, nodes, cluster, selectors=selectors)
        ):
            del self._proofs[key]
            return None
        found.cluster, found.stale = cluster, found.stale + bool(nodes)
        return found

    def forget_changes(self) -> None:
        """Drop the changed nodes, for callers that see many cluster states without beginning a cycle."""
        self._changed.clear()

    @property
    def is_stale(self) -> bool:
        """Whether some message has to be renewed in a cycle without changes."""
        return any(proof.stale for proof in self._proofs.values())

    def _renew(self, most: int) -> None:
        """Drop one proof whose message misses more than `most` changes, so that it is found again."""
        key = next((key for key, proof in self._proofs.items() if proof.stale > most), None)
        if key is not None:
            del self._proofs[key]

    def prove(self, key: Hashable, proof: InfeasibilityProof) -> None:
        """Keep a proof that there is no plan."""
        self._proofs[key] = proof
