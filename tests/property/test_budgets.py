"""Budgets over simulated weeks: nobody spends more than was there, but for what runs longer than it paid for."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from admission.accounting.accruals import QueueMeter
from admission.api.muster import queues
from admission.api.muster.ledger_entries import Holding, Placement
from admission.api.muster.queues import Budget, Queue
from admission.api.values.names import GangUid, MeterName, QueueName, Uid
from admission.quota import budget_periods, budgets
from admission.quota.budget_periods import Span
from admission.quota.budgets import Balances, Sources
from admission.quota.tree import Tree

GPU = MeterName("gpu")
START = datetime(2026, 10, 23, 21, tzinfo=UTC)
NAMES = ["root", "a", "b", "a1"]
PARENTS = {"a": "root", "b": "root", "a1": "a"}
END = timedelta(days=4000)

HOURS = st.integers(1, 60)
PERIODS = st.sampled_from(["Day", "Week", "Month", "Quarter", "Year"])
BUDGETS = st.lists(
    st.tuples(HOURS, PERIODS, st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"])),
    max_size=2,
    unique_by=lambda parts: parts[1:],
)


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang that was let in. runs: how long it really uses its charge."""

    queue: QueueName
    gpus: int
    at: datetime
    paid: int
    runs: timedelta

    def within(self, start: datetime, end: datetime, *, until: timedelta, after: timedelta = timedelta(0)) -> int:
        """Return the meter-seconds from `after` to `until` of the gang's life that lie within a part of time."""
        first, last = max(start, self.at + after), min(end, self.at + until)
        return self.gpus * max(0, (last - first) // timedelta(seconds=1))

    def placement(self, number: int) -> Placement:
        holding = Holding(claim_uid=Uid("c"), claim="ns/c", devices=(), charge={GPU: self.gpus}, settled=True)
        return Placement(
            gang_uid=GangUid(str(number)),
            gang="ns/g",
            queue=self.queue,
            reserved_at=self.at,
            holdings={Uid("c"): holding},
        )


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    return Tree.build(a_queue(name, draw(BUDGETS)) for name in NAMES)


def a_queue(name: str, parts: list[tuple[int, str, str]]) -> Queue:
    listed = [{"meter": "gpu", "hours": n, "period": period, "timeZone": zone} for n, period, zone in parts]
    parent = {"parent": PARENTS[name]} if name in PARENTS else {}
    return queues.decode({"metadata": {"name": name}, "spec": {"budgets": listed, **parent}})


ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(1, 9),
        st.timedeltas(timedelta(0), timedelta(hours=14)),
        st.timedeltas(timedelta(seconds=1), timedelta(hours=40)),
        st.timedeltas(timedelta(0), timedelta(hours=50)),
    ),
    max_size=12,
)


def balances(tree: Tree, gangs: list[Gang], now: datetime) -> Balances:
    booked: dict[datetime, dict[QueueMeter, int]] = {}
    for start in budgets.starts(tree, now):
        spent: defaultdict[QueueMeter, int] = defaultdict(int)
        for gang in gangs:
            spent[gang.queue, GPU] += gang.within(start, now, until=gang.runs)
        booked[start] = dict(spent)
    running = [(number, gang) for number, gang in enumerate(gangs) if gang.at + gang.runs > now]
    return Balances(
        tree,
        now,
        Sources(
            booked=booked,
            placements=[gang.placement(number) for number, gang in running],
            runtimes={GangUid(str(number)): timedelta(seconds=gang.paid) for number, gang in running},
        ),
    )


def let_in(tree: Tree, arrivals: list[tuple[str, int, timedelta, timedelta, timedelta]]) -> list[Gang]:
    gangs: list[Gang] = []
    now = START
    for name, gpus, wait, stated, runs in arrivals:
        now += timedelta(seconds=wait // timedelta(seconds=1))
        queue = QueueName(name)
        if balances(tree, gangs, now).shortage(queue, {GPU: gpus}, stated) is None:
            paid = budgets.paid_seconds(tree.queues[queue], stated)
            gangs.append(Gang(queue, gpus, now, paid, timedelta(seconds=runs // timedelta(seconds=1))))
    return gangs


def spans(budget: Budget, until: datetime) -> list[Span]:
    found = [budget_periods.span(budget, START)]
    while (last := found[-1]) is not None and last.end < until:
        found.append(budget_periods.span(budget, last.end))
    return [span for span in found if span is not None]


@given(trees(), ARRIVALS)
def test_no_budget_is_exceeded_but_by_what_came_from_before_and_by_what_ran_longer(
    tree: Tree, arrivals: list[tuple[str, int, timedelta, timedelta, timedelta]]
) -> None:
    gangs = let_in(tree, arrivals)

    for name, queue in tree.queues.items():
        under = [gang for gang in gangs if name in tree.path(gang.queue)]
        for budget in queue.budgets:
            for start, end in spans(budget, START + timedelta(days=14)):
                spent = sum(gang.within(start, end, until=gang.runs) for gang in under)
                longer = sum(
                    gang.within(start, end, until=gang.runs, after=timedelta(seconds=gang.paid)) for gang in under
                )
                before = sum(
                    gang.within(start, end, until=timedelta(seconds=gang.paid)) for gang in under if gang.at < start
                )
                assert spent <= max(budget.seconds, before) + longer


@given(trees(), ARRIVALS)
def test_the_budget_that_a_gang_needs_is_what_its_charge_takes_and_its_release_returns(
    tree: Tree, arrivals: list[tuple[str, int, timedelta, timedelta, timedelta]]
) -> None:
    gangs = let_in(tree, arrivals)
    now = gangs[-1].at if gangs else START
    found = balances(tree, gangs, now)
    before = {name: found.of_queue(name) for name in tree.queues}

    for name, gpus, _, stated, _ in arrivals:
        found.charge(QueueName(name), {GPU: gpus}, stated)
    for gang in gangs:
        shortage = found.shortage(gang.queue, {GPU: gang.gpus}, END)
        assert shortage is None or shortage.needed > shortage.balance.left
    for name, gpus, _, stated, _ in arrivals:
        found.give_back(QueueName(name), {GPU: gpus}, stated)

    assert {name: found.of_queue(name) for name in tree.queues} == before


@given(trees(), ARRIVALS)
def test_spent_and_committed_budget_of_a_parent_is_the_sum_over_its_children(
    tree: Tree, arrivals: list[tuple[str, int, timedelta, timedelta, timedelta]]
) -> None:
    """The same budget everywhere, so that the sums can be compared."""
    same = Tree.build(a_queue(name, [(30, "Day", "UTC")]) for name in NAMES)
    gangs = let_in(tree, arrivals)
    now = gangs[-1].at if gangs else START
    found = balances(same, gangs, now)
    taken = {name: balance.spent + balance.committed for name in NAMES for balance in found.of_queue(QueueName(name))}
    alone = balances(same, [gang for gang in gangs if gang.queue == "root"], now).of_queue(QueueName("root"))[0]

    assert taken["root"] == taken["a"] + taken["b"] + alone.spent + alone.committed
