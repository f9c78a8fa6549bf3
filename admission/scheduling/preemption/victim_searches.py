"""The searches for victims: which questions are searched in a cycle, and which need not be searched again."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid
from admission.dra.planner import requeue_hint
from admission.dra.state.cluster_state import ClusterState
from admission.incremental import are_same
from admission.scheduling.preemption.equivalence import PreemptionQuestion, PreemptionQuestions
from admission.workloads.gangs import Group


@dataclass(slots=True)
class VictimSearches:
    """The questions of preempting gangs, and what the last search left. One per leader.

    Rule: a question that `note_failed` records is not searched again until `begin` finds that nodes, the use of devices
    or another input has changed. Changes are found by the identity of the inputs. A search is too expensive to be
    a value over `admission.incremental`: the remaining questions are searched in later cycles, in turn.
    """

    _questions: PreemptionQuestions = field(default_factory=PreemptionQuestions)
    _groups: tuple[Group, ...] = ()
    _cluster: ClusterState | None = None
    _made_from: tuple[object, ...] = ()
    """The gangs, the cluster state and the other inputs of the last search."""
    _failed: set[Hashable] = field(default_factory=set)
    """The questions without victims on these inputs."""
    _has_more: bool = False
    _turn: int = 0
    _turns: dict[Hashable, int] = field(default_factory=dict)
    """By question, the turn of its last search."""

    @property
    def failed(self) -> frozenset[Hashable]:
        return frozenset(self._failed)

    @property
    def has_more(self) -> bool:
        """Return whether the last search left questions for the next one."""
        return self._has_more

    def question(self, group: Group, queue: Queue, needed: Charge, snapshot: Snapshot) -> PreemptionQuestion:
        """Return the question of a gang in this search. needed: a lower bound on its charge."""
        labels = self._cluster.placed.read_labels if self._cluster is not None else frozenset[str]()
        return self._questions.question(group, queue, needed, snapshot, labels)

    def keep(self, gangs: Iterable[GangUid]) -> None:
        """Drop the questions of all other gangs."""
        self._questions.keep(gangs)

    def begin(self, groups: tuple[Group, ...], cluster: ClusterState, *made_from: object) -> bool:
        """Begin a search for victims. Return whether there is anything that was not searched before.

        Failed questions are searched again if the inputs, nodes or the use of devices have changed.
        """
        moved = self._cluster is not cluster and (
            self._cluster is None
            or self._cluster.placed.storage is not cluster.placed.storage
            or requeue_hint.changed(self._cluster, cluster) != frozenset()
        )
        same = are_same(made_from, self._made_from)
        if moved or not same:
            self._failed.clear()
        is_new = self._has_more or moved or not same or groups is not self._groups
        self._groups, self._cluster, self._made_from, self._has_more = groups, cluster, made_from, False
        self._turn += 1
        return is_new

    def next(self, questions: Sequence[Hashable], most: int) -> frozenset[Hashable]:
        """Return the questions to search in this cycle: at most so many, the least recently searched first.

        questions: of all gangs that preempt now; others are dropped.
        """
        self._failed.intersection_update(questions)
        fresh = [question for question in questions if question not in self._failed]
        self._has_more = len(fresh) > most
        found = frozenset(sorted(fresh, key=lambda question: self._turns.get(question, 0))[:most])
        still = frozenset(questions)
        self._turns = {question: turn for question, turn in self._turns.items() if question in still} | dict.fromkeys(
            found, self._turn
        )
        return found

    def note_failed(self, question: Hashable) -> None:
        self._failed.add(question)
