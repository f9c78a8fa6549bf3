"""Whatever happens, and wherever the controller dies: the books balance, quota holds, and nothing stays reserved.

Budgets hold too, and what is spent of them is what the lines on use add up to, however often the books were marked.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Placement
from admission.api.muster.queues import Budget, Period, Quota
from admission.api.values.names import MeterName, QueueName
from admission.errors import DeposedError
from admission.ledger.sql_ledger import SqlLedger
from tests import soaking
from tests.builders import NOON, a_cluster
from tests.integration import ledgers
from tests.integration.conftest import Fresh
from tests.integration.ledgers import CLUSTER
from tests.property.faulty_clusters import GPUS, NODES, Controller, Fault, Faults, Town

ROOT = QueueName("lab")
TEAMS = [QueueName("east"), QueueName("north"), QueueName("west")]
PARENTS = {QueueName("east"): QueueName("region"), QueueName("north"): QueueName("region")} | {
    QueueName("west"): ROOT,
    QueueName("region"): ROOT,
}
LIMITS = st.none() | st.integers(0, 4)
HOURS = st.none() | st.integers(1, 4)
"""Of a budget for each day, in device-hours."""
HOUR = timedelta(hours=1)
"""For which a gang is paid that does not say how long it runs."""
SECOND = timedelta(seconds=1)
LONG = timedelta(hours=3)
"""More than any start timeout and back-off of these queues."""


class Fire(RuleBasedStateMachine):
    """People, kube-scheduler, owners of queues, and controllers that die."""

    databases: ClassVar[list[Fresh]]
    """What makes a ledger, for this run."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.now = NOON
        self.jobs = 0
        self.epoch = 1
        self.faults = Faults()
        self.former: Controller | None = None

    @initialize(
        nominals=st.lists(st.integers(0, 4), min_size=5, max_size=5),
        limits=st.lists(LIMITS, min_size=10, max_size=10),
        hours=st.lists(HOURS, min_size=5, max_size=5),
    )
    def found(self, nominals: list[int], limits: list[int | None], hours: list[int | None]) -> None:
        builder = a_cluster()
        for node, gpus in NODES.items():
            builder.node(node, gpus=gpus)
        for at, name in enumerate((ROOT, QueueName("region"), *TEAMS)):
            spec: dict[str, Any] = {"parent": PARENTS[name]} if name in PARENTS else {}
            quota = {"meter": GPUS, "nominal": str(nominals[at])}
            given = zip(("borrowingLimit", "lendingLimit"), limits[2 * at : 2 * at + 2], strict=True)
            quota |= {limit: str(amount) for limit, amount in given if amount is not None and name != ROOT}
            claims = {"meter": "claims", "nominal": "100"}
            builder.queue(name, quotas=[quota, claims], startTimeout="5m", requeue={"max": "30m"}, **spec)
        (new_ledger,) = self.databases
        self.url = new_ledger()
        self.ledger = self.runner.run(self.stack.enter_async_context(SqlLedger.open(self.url, CLUSTER)))
        self.town = Town(builder, self.ledger)
        for name, limit in zip((ROOT, QueueName("region"), *TEAMS), hours, strict=True):
            self.edit_a_budget(name, limit)
        self.leader = self.runner.run(self._a_leader())

    async def _a_leader(self) -> Controller:
        leader = Controller(self.town, self.ledger, self.faults, epoch=self.epoch)
        await leader.begin()
        return leader

    @contextmanager
    def _queues_made_anew(self) -> Iterator[None]:
        """Make queues anew that go meanwhile, as their owners had declared them."""
        declared = self.town.snapshot().queues
        try:
            yield
        finally:
            self.town.make_anew(declared.values())

    def book(self) -> Book:
        return self.runner.run(self.ledger.load())

    # People.

    @rule(queue=st.sampled_from(TEAMS), pods=st.integers(1, 3), gpus=st.integers(0, 3), priority=st.integers(0, 1))
    def submit(self, queue: QueueName, pods: int, gpus: int, priority: int = 0) -> None:
        self.jobs += 1
        self.town.submit(f"job{self.jobs}", queue, pods=pods, gpus=gpus, priority=priority)

    @rule(queue=st.sampled_from(TEAMS), pods=st.integers(1, 2), gpus=st.integers(1, 2), ends=st.booleans())
    def an_undisturbed_hour(self, queue: QueueName, pods: int, gpus: int, ends: bool) -> None:
        """A Job comes, starts where it can, and ends or not; whoever was let in earlier starts as well."""
        self.submit(queue, pods, gpus)
        self._undisturbed(minutes=1)
        book = self.book()
        for pod in self.town.let_in(book):
            self.town.bind(pod, book, otherwise=False)
        self._undisturbed(minutes=1)
        if ends:
            self.town.finish(self.town.running()[:2])
        self._undisturbed(minutes=58)

    def _undisturbed(self, minutes: int) -> None:
        self.cycle(60 * minutes, -1, Fault.REFUSED)

    @rule(data=st.data())
    def delete_pods(self, data: st.DataObject) -> None:
        self.town.delete(data.draw(_some(self.town.everybody())))

    @rule(data=st.data())
    def take_an_allocation_away(self, data: st.DataObject) -> None:
        for uid in data.draw(_some(self.town.allocated())):
            self.town.take_away(uid)

    @rule(
        name=st.sampled_from([ROOT, *PARENTS]),
        nominal=st.integers(0, 6),
        borrowing=LIMITS,
        lending=LIMITS,
    )
    def edit_a_quota(self, name: QueueName, nominal: int, borrowing: int | None, lending: int | None) -> None:
        queue = self.town.queue_of(name)
        limits = {} if name == ROOT else {"borrowing_limit": borrowing, "lending_limit": lending}
        edited = Quota(meter=GPUS, nominal=nominal, **limits)
        others = tuple(quota for quota in queue.quotas if quota.meter != GPUS)
        self.town.edit(replace(queue, quotas=(edited, *others)))

    @rule(name=st.sampled_from([ROOT, *PARENTS]), hours=HOURS)
    def edit_a_budget(self, name: QueueName, hours: int | None) -> None:
        daily = () if hours is None else (Budget(meter=GPUS, seconds=hours * 3600, period=Period.DAY),)
        self.town.edit(replace(self.town.queue_of(name), budgets=daily))

    @rule(name=st.sampled_from([ROOT, *PARENTS]))
    def delete_a_queue(self, name: QueueName) -> None:
        """It is made anew as soon as it is gone, which is not before its gangs have ended."""
        with self._queues_made_anew():
            self.town.delete_queue(name, self.now)

    @rule(cycles=st.integers(1, 3))
    def the_database_goes_away(self, cycles: int) -> None:
        self.faults.away = cycles

    @rule(seconds=st.integers(1, 600))
    def the_clock_goes_back(self, seconds: int) -> None:
        self.now -= timedelta(seconds=seconds)

    # Kubernetes.

    @rule(data=st.data(), otherwise=st.booleans())
    def bind_some(self, data: st.DataObject, otherwise: bool) -> None:
        book = self.book()
        for pod in data.draw(_some(self.town.let_in(book))):
            self.town.bind(pod, book, otherwise=otherwise)

    @rule(data=st.data())
    def end_some(self, data: st.DataObject) -> None:
        self.town.finish(data.draw(_some(self.town.running())))

    # Muster.

    @rule(seconds=st.integers(0, 400), after=st.integers(-1, 12), kind=st.sampled_from(Fault))
    def cycle(self, seconds: int, after: int, kind: Fault) -> None:
        self.now += timedelta(seconds=seconds)
        self.faults.kind, self.faults.after = kind, after
        before = self.book()
        is_away = bool(self.faults.away)
        ending = {name for name in (ROOT, *PARENTS) if self.town.queue_of(name).meta.deleted is not None}
        with self._queues_made_anew():
            result = self.runner.run(self.leader.cycle(self.now))
        self.faults.never()
        book = self.book()
        assert not is_away or book == before
        self._check_quota(before, book, ending)
        self._check_budgets(before, book)
        if result is None:
            self.succeed()

    @precondition(lambda self: self.former is None)
    @rule()
    def succeed(self) -> None:
        """Another controller takes the lead; the former one does not know it yet."""
        self.former = self.leader
        self.epoch += 1
        self.leader = self.runner.run(self._a_leader())

    @precondition(lambda self: self.former is not None)
    @rule()
    def a_deposed_leader_acts(self) -> None:
        assert self.former is not None
        before = self._rows()
        town = Town(a_cluster(), self.ledger)
        town.__dict__.update({name: dict(value) for name, value in vars(self.town).items() if isinstance(value, dict)})
        town.make_anew(self.town.snapshot().queues.values())
        ports = self.former.leader.ports
        changed = replace(ports, view=self.town, pods=town, claims=town, workloads=town, queues=town, reports=town)
        self.former.leader = replace(self.former.leader, ports=changed)
        try:
            self.runner.run(self.former.cycle(self.now))
        except DeposedError:
            pass
        finally:
            self.former = None
        assert self._rows() == before

    # What holds at any time.

    @invariant()
    def every_transaction_sums_to_zero(self) -> None:
        sums: Counter[tuple[Any, ...]] = Counter()
        for sequence, queue, meter, bucket, amount in self._postings():
            unit = "meter-seconds" if bucket in (Bucket.SUPPLY, Bucket.SPENT) else "amount"
            sums[sequence, queue, meter, unit] += int(amount)
        assert not any(sums.values())

    def _check_quota(self, before: Book, after: Book, ending: set[QueueName]) -> None:
        """Nobody who took more in this cycle has more than the tree gives, limits included, or is being deleted."""
        quotas = {name: _quota(self.town, name) for name in (ROOT, *PARENTS)}
        had, has = _taken(before), _taken(after)
        for name in TEAMS:
            if has[name] > had[name]:
                assert ending.isdisjoint(_path(name))
                _check_path(name, quotas, has)

    def _check_budgets(self, before: Book, after: Book) -> None:
        """What is spent and what is promised is within every budget of those who were let in in this cycle."""
        known = {(placement.gang_uid, placement.reserved_at) for placement in before.placements.values()}
        for new in after.placements.values():
            if (new.gang_uid, new.reserved_at) not in known and _charge(new):
                for name in _path(new.queue):
                    for budget in self.town.queue_of(name).budgets:
                        taken = self._taken(name, after, new.reserved_at.replace(microsecond=0))
                        assert taken <= budget.seconds, f"{taken} of the {budget.seconds} of {name} are taken"

    def _taken(self, name: QueueName, book: Book, now: datetime) -> int:
        """Return what is spent on a day until now, and promised until its end, added up from the lines on use."""
        midnight = now.replace(hour=0, minute=0, second=0)
        promised = sum(
            _charge(placement) * max(0, (min(placement.reserved_at + HOUR, midnight + 24 * HOUR) - now) // SECOND)
            for placement in book.placements.values()
            if name in _path(placement.queue)
        )
        return promised + sum(self._spent(team, midnight, now) for team in TEAMS if name in _path(team))

    def _spent(self, team: QueueName, start: datetime, end: datetime) -> int:
        lines = self._read(
            "SELECT at, p.queue, p.meter, p.amount FROM postings p JOIN transactions USING (cluster, sequence)"
            " WHERE bucket = 'used'"
        )
        return sum(
            int(amount) * max(0, (end - max(start, _second(at))) // SECOND)
            for at, queue, meter, amount in lines
            if (queue, meter) == (team, GPUS)
        )

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self._after_all()
        self.runner.run(self.stack.aclose())
        self.runner.close()

    def _after_all(self) -> None:
        """Everybody leaves; what remains is what was granted, and the chain proves it."""
        self.faults.away = 0
        self.town.delete(self.town.everybody())
        self.now = max(self.now, self.book().at or self.now)
        for _ in range(4):
            self.now += LONG
            with self._queues_made_anew():
                self.runner.run(self.leader.cycle(self.now))
        left = self.book()
        assert left.placements == {}
        assert {use for queue in left.usage().values() for use in queue.values()} <= {(0, 0)}
        for name in (ROOT, *PARENTS):
            assert left.balance(name, GPUS, Bucket.FREE) == _quota(self.town, name).nominal
        noon = self.now.replace(hour=12, minute=0, second=0)
        booked = self.runner.run(self.ledger.spent(noon - 24 * HOUR))
        marked = left.marked or self.now
        for team in TEAMS:
            assert left.balance(team, GPUS, Bucket.SPENT) == self._spent(team, NOON - 24 * HOUR, marked)
            assert booked.get((team, GPUS), 0) == self._spent(team, noon - 24 * HOUR, marked)
        found = self.runner.run(self.ledger.verify())
        assert found.ok, found.finding

    def _postings(self) -> list[Any]:
        return self._read("SELECT sequence, queue, meter, bucket, amount FROM postings")

    def _rows(self) -> list[Any]:
        return self._read("SELECT count(*) FROM transactions")

    def _read(self, statement: str) -> list[Any]:
        return ledgers.rows(self.url, statement)


def _second(at: datetime | str) -> datetime:
    """Return a time as its database gives it, cut down to the second."""
    return (datetime.fromisoformat(at) if isinstance(at, str) else at).replace(microsecond=0)


def _some(things: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(things), unique_by=id, max_size=4) if things else st.just([])


def _path(name: QueueName) -> list[QueueName]:
    return [name, *(_path(PARENTS[name]) if name in PARENTS else ())]


def _charge(placement: Placement) -> int:
    return sum(holding.charge.get(GPUS, 0) for holding in placement.holdings.values())


def _taken(book: Book) -> Counter[QueueName]:
    taken = {queue: sum(meters.get(GPUS, (0, 0))) for queue, meters in book.usage().items()}
    return Counter(taken)


def _quota(town: Town, name: QueueName) -> Quota:
    return next(quota for quota in town.queue_of(name).quotas if quota.meter == MeterName(GPUS))


def _check_path(name: QueueName, quotas: Mapping[QueueName, Quota], taken: Mapping[QueueName, int]) -> None:
    """Check the queue and those above it, by sums written down from the definition of the limits."""
    at: QueueName | None = name
    while at is not None:
        has, due = _used(at, quotas, taken), _due(at, quotas)
        limit = quotas[at].borrowing_limit
        if at == ROOT:
            assert has <= due, f"{has} of {due} are taken in all"
        elif limit is not None:
            assert has <= due + limit, f"{at} has {has}, its own are {due} and it may borrow {limit}"
        at = PARENTS.get(at)


def _due(name: QueueName, quotas: Mapping[QueueName, Quota]) -> int:
    """Return a queue's own quota with what its children lend it."""
    return quotas[name].nominal + sum(
        _due(child, quotas) - _kept(child, quotas) for child, above in PARENTS.items() if above == name
    )


def _kept(name: QueueName, quotas: Mapping[QueueName, Quota]) -> int:
    limit = quotas[name].lending_limit
    return 0 if limit is None else max(0, _due(name, quotas) - limit)


def _used(name: QueueName, quotas: Mapping[QueueName, Quota], taken: Mapping[QueueName, int]) -> int:
    """Return what counts against a queue: its own use, and its children's beyond what they keep for themselves."""
    return taken.get(name, 0) + sum(
        max(0, _used(child, quotas, taken) - _kept(child, quotas)) for child, above in PARENTS.items() if above == name
    )


@pytest.mark.timeout(7200)
def test_the_ledger_stays_consistent_under_random_failures(database: str, new_ledger: Fresh) -> None:
    class FireHere(Fire):
        """On a database of this kind."""

        databases: ClassVar[list[Fresh]] = [new_ledger]

    # PostgreSQL answers more slowly, and only the SQL differs.
    usual = soaking.examples(20)
    few = settings(
        max_examples=usual if database == "sqlite" else usual // 3,
        deadline=None,
        stateful_step_count=40,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(FireHere, settings=few)
