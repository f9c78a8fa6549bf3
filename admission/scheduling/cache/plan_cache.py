"""The cache of the planner's answers: a gang is planned again only after a change that may help it.

A cycle runs for every change in the cluster, most of which do not concern pending gangs. Two things are kept:

- *Proofs* that there is no plan. They hold for every equivalent gang, whatever its quota, until nodes or devices change
  so that one of its pods may get devices on them (`planner.requeue_hint`). A message is as of the time of the proof; an
  old one is renewed, at most one in each cycle. Where it says the same again, the proof stays the same object, so that
  everything that rests on it still does.
- Other *holds* of single gangs, while the cluster state, the quotas, their usage and the gang's own demand are the
  same. That is sound, since the planner is a function of exactly these. Only holds found before the cycle's first grant
  count.

Neither is a declaration over `admission.incremental`: a proof survives changes of its input, the cluster state, as long
as these cannot help, and a hold is compared by the value of quotas and usage, which are other objects in each cycle.
The law is tested in `tests/property/test_cycles.py`.
"""

from collections.abc import Hashable, Mapping
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
from admission.scheduling.placement.proposal import Proved
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
    """The inputs that the answers for all gangs depend on. in_the_end: see `cycle.decide_all`."""

    cluster: ClusterState
    usage: Usage
    in_the_end: Usage | None
    queues: Mapping[QueueName, Queue]
    meters: Meters
    steps: int
    protection: Protections

    def same(self, other: "Basis") -> bool:
        """Return whether the planner gives the same answers on both."""
        return (
            self.same_rules(other)
            and self.usage == other.usage
            and self.in_the_end == other.in_the_end
            and self.queues == other.queues
            and cluster_state.same(self.cluster, other.cluster)
        )

    def same_rules(self, other: "Basis") -> bool:
        """Return whether a proof on one holds on the other, cluster states aside."""
        return self.meters is other.meters and self.steps == other.steps and self.protection == other.protection


@dataclass(slots=True, eq=False)
class InfeasibilityProof:
    """A proof that there is no plan, in numbered names, and the last cluster state in which it held.

    capacity_bound: the proof by counting, if there is one. stale: how often nodes have changed since the message was
    written.
    """

    hold: Proved
    question: Question
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
    _old: Hashable = None
    """The key of a proof whose message is to be renewed in this cycle."""
    _changed: dict[tuple[object, object], frozenset[NodeName] | None] = field(default_factory=dict)
    """The nodes that changed between two cluster states, by their tokens; kept for one cycle."""

    def begin(self, basis: Basis) -> None:
        """Start a cycle: drop answers whose inputs have changed."""
        if self._basis is None or not self._basis.same(basis):
            self._holds.clear()
        if self._basis is None or not self._basis.same_rules(basis) or len(self._proofs) > MOST_PROOFS:
            self._proofs.clear()
            self._old = None
        elif self._basis.cluster is basis.cluster or cluster_state.same(self._basis.cluster, basis.cluster):
            self._old = self._oldest(0)
        else:
            self._old = self._oldest(MOST_STALE)
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
        nodes, pods = self._changed[tokens], found.question[0]
        # nodes is None if everything may differ, classes included; then the bound's question may differ as well.
        is_lacking = nodes is not None and found.capacity_bound is not None and found.capacity_bound.is_felt(cluster)
        if not is_lacking and (
            requeue_hint.may_help_volumes(found.cluster, cluster, pods)
            or requeue_hint.may_help(pods, nodes, cluster, selectors=selectors)
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

    def _oldest(self, most: int) -> Hashable:
        """Return the key of a proof whose message misses more than `most` changes; None if none does."""
        return next((key for key, proof in self._proofs.items() if proof.stale > most), None)

    @property
    def old_question(self) -> Question | None:
        """Return the question of a proof whose message is to be renewed; None if none is."""
        found = self._proofs.get(self._old)
        return None if found is None else found.question

    def renew(self, answer: Hold | None) -> None:
        """Keep the answer to `old_question`. If it is no proof, the question is asked again for each gang."""
        key, known = self._old, self._proofs.pop(self._old, None)
        self._old = None
        if known is None or self._basis is None or not isinstance(answer, Proved):
            return
        if answer != known.hold:
            self.prove(key, answer, known.question, self._basis.cluster)
            return
        known.cluster, known.capacity_bound, known.stale = self._basis.cluster, answer.capacity_bound, 0
        self._proofs[key] = known

    def prove(self, key: Hashable, hold: Proved, question: Question, cluster: ClusterState) -> InfeasibilityProof:
        """Keep a proof that there is no plan. hold, question: in numbered names."""
        proof = InfeasibilityProof(hold=hold, question=question, cluster=cluster, capacity_bound=hold.capacity_bound)
        self._proofs[key] = proof
        return proof
