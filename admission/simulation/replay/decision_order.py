"""The order in which the jobs of a replay have their turn, as `scheduling.cycle` asks gangs."""

from collections.abc import Callable, Iterable, Iterator

from admission.api.muster.gangs import Charge
from admission.api.values.names import QueueName
from admission.quota import queue_order
from admission.quota.queue_order import Rank, Tournament
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks.chain import Inputs
from admission.scheduling.postponed_grants import Decide, PostponedGrants
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.backlog import ReplayQueue
from admission.simulation.replay.cluster import Clock


class DecisionOrder:
    """The jobs that have their turn, in order, each with its backlog if it is to be decided.

    A queue is ranked by its next job, also if that is known to be held, as in the controller's cycle, which asks all
    jobs. So these have their turn, too, once jobs of several queues are to be decided. Between the children of one root
    it is enough if before each job to be decided the last one ahead of it in each backlog of its queue has its turn.
    """

    def __init__(self, clock: Clock, backlogs_of: Callable[[QueueName | None], Iterable[ReplayQueue]]) -> None:
        self._backlogs_of = backlogs_of
        self._undecided: dict[str, tuple[Waiting, ReplayQueue]] = {}
        self._entered: set[str] = set()
        self._passed: dict[QueueName, Rank] = {}
        """By queue, the rank of the last job that had its turn."""
        self._queues: set[QueueName] = set()
        self._has_all = False
        self._tree = clock.replay_cluster.tree
        self._tournament = Tournament(clock.shares, (), lambda one: one.queue, clock.needed)
        self.postponed = PostponedGrants[Waiting]()

    def __iter__(self) -> Iterator[tuple[Waiting, ReplayQueue | None]]:
        while self._undecided:
            waiting = next(self._tournament)
            self._entered.discard(waiting.key)
            self._passed[waiting.queue] = queue_order.rank(waiting)
            yield waiting, self._undecided.pop(waiting.key, (waiting, None))[1]

    @property
    def has_more(self) -> bool:
        """Whether any job is to be decided."""
        return bool(self._undecided)

    def enter(self, waiting: Waiting, backlog: ReplayQueue | None = None) -> None:
        """Enter a job, unless it is entered already or has had its turn. backlog: of a job that is to be decided."""
        passed = self._passed.get(waiting.queue)
        if passed is not None and queue_order.rank(waiting) <= passed:
            return
        if backlog is not None:
            self._undecided[waiting.key] = waiting, backlog
        self._put(waiting)
        is_new = waiting.queue not in self._queues
        self._queues.add(waiting.queue)
        if self._has_all or len(self._queues) == 1:
            return
        if self._are_children_of_one_root():
            entered = [one for one, _ in self._undecided.values()] if is_new and len(self._queues) == 2 else []
            for one in (*entered, waiting):
                self._put_before(queue_order.rank(one), one.queue, 1)
        else:
            self._has_all = True
            for queue in {backlog.queue.name for backlog in self._backlogs_of(None)}:
                self._put_before(None, queue)

    def settled(
        self, waiting: Waiting, backlog: ReplayQueue, verdict: Verdict, inputs: Inputs, decide: Decide
    ) -> Verdict | None:
        """Return the verdict on a job that has its turn, beside what owners may take first of their own quota.

        None if it is granted more than was known, and is entered again since it comes later then.
        """
        if not self.postponed.postpone(self._tournament, waiting, verdict, inputs):
            return self.postponed.beside_owners(self._tournament, verdict, inputs, decide)
        self._undecided[waiting.key] = waiting, backlog
        self._entered.add(waiting.key)
        return None

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count a grant to a queue."""
        self._tournament.charge(queue, charge)
        self.postponed.note_change()

    def _are_children_of_one_root(self) -> bool:
        parents = {self._tree.parents.get(queue) for queue in self._queues}
        return len(parents) == 1 and None not in parents and parents.isdisjoint(self._tree.parents)

    def _put_before(self, rank: Rank | None, queue: QueueName, most: int | None = None) -> None:
        """Enter the last jobs before a rank of each backlog of a queue that had no turn yet. most: of each, at most."""
        for backlog in self._backlogs_of(queue):
            for one in backlog.between(self._passed.get(queue), rank)[-most if most else None :]:
                self._put(one)

    def _put(self, waiting: Waiting) -> None:
        if waiting.key not in self._entered:
            self._entered.add(waiting.key)
            self._tournament.enter(waiting)
