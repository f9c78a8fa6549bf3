"""Laws of looking for the first time: what is guessed, counted or known already changes nothing of what is found."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from admission.api.traces import Arrival
from admission.scheduling.backfill import earliest_start, reservations
from admission.scheduling.backfill.reservations import Times
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import PROOF, QUOTA
from admission.scheduling.checks import chain
from admission.scheduling.checks.chain import Grant, Inputs, Known
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.cluster import Clock, ReplayCluster
from admission.simulation.replay.queue import Muster
from tests.property.test_backfill import jobs, towns

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def seconds(numbers: Sequence[int]) -> list[datetime]:
    return [EPOCH + timedelta(seconds=number) for number in numbers]


@given(st.lists(st.integers(0, 60), unique=True).map(sorted), st.integers(0, 70), st.none() | st.integers(-5, 70))
def test_the_first_fitting_time_is_found_from_any_guess(numbers: list[int], fits: int, guess: int | None) -> None:
    ends, (least,) = seconds(numbers), seconds([fits])
    times = Times(iter(ends), EPOCH - timedelta(seconds=1))
    start = 0 if guess is None else times.near(*seconds([guess]))

    found = reservations.first(times, lambda at: at >= least, start)

    expected = next((at for at, end in enumerate(ends) if end >= least), None)
    assert found == expected


@given(st.lists(st.integers(0, 60), unique=True, min_size=1).map(sorted), st.data())
def test_a_right_guess_of_the_first_fitting_time_takes_two_questions(numbers: list[int], data: st.DataObject) -> None:
    ends, asked = seconds(numbers), set[datetime]()
    least = data.draw(st.sampled_from(ends))
    times = Times(iter(ends), EPOCH - timedelta(seconds=1))

    def fits(at: datetime) -> bool:
        asked.add(at)
        return at >= least

    reservations.first(times, fits, times.near(least))

    assert asked == set(ends[max(0, ends.index(least) - 1) :][: 1 if least == ends[0] else 2])


def played(town: ReplayCluster, arrivals: Sequence[Arrival]) -> tuple[Clock, Sequence[Waiting]]:
    """Let half of some jobs start that can; return the others."""
    stage, half = Clock(town), len(arrivals) // 2
    decider = Muster(stage)
    first, others = ([Waiting(one, town.rules.now) for one in part] for part in (arrivals[:half], arrivals[half:]))
    for waiting in first:
        decider.arrive(waiting)
    decider.settle(freed=False)
    return stage, others


def asked(stage: Clock, waiting: Waiting) -> Inputs:
    inputs = chain.with_demand(stage.inputs(waiting, stage.queue_usage))
    return replace(inputs, rules=replace(inputs.rules, workspace=replace(inputs.rules.workspace, plans=PlanCache())))


@given(towns(), jobs(), st.none() | st.integers(0, 25))
def test_the_earliest_start_equals_that_of_a_search_through_all_times(
    town: ReplayCluster, arrivals: tuple[Arrival, ...], guess: int | None
) -> None:
    stage, others = played(town, arrivals)
    present, later = stage.backfill._present, stage.backfill._later

    for waiting in others:
        inputs = asked(stage, waiting)
        search = earliest_start.Search(inputs=inputs, present=present, later=later, others=lambda *_: [])
        guessed = None if guess is None else stage.time + timedelta(seconds=guess)
        found = search.first(Times(present.ends, stage.time), guessed)

        expected = None
        for at in dict.fromkeys(present.ends):
            removed = present.removed(at)
            cluster_state = later.cluster(inputs.cluster, removed=[one.interval for one in removed])
            plan = earliest_start.planned(
                inputs, reservations.moment(cluster_state, inputs.queue_usage, at, removed), PlanCache()
            )
            if plan is not None:
                expected = at, plan.pods, plan.uses
                break
        assert (found and (found[0].at, found[1].pods, found[1].uses)) == expected


@given(towns(), jobs())
def test_no_gang_has_a_plan_where_its_capacity_bound_excludes_one(
    town: ReplayCluster, arrivals: tuple[Arrival, ...]
) -> None:
    stage, others = played(town, arrivals)

    for waiting in others:
        inputs = asked(stage, waiting)
        capacity_bound = earliest_start.capacity_bound(inputs)
        assert capacity_bound is not None
        assert not (capacity_bound.is_felt(inputs.cluster) and isinstance(chain.decide(inputs).outcome, Grant))


@given(towns(), jobs())
def test_cached_facts_of_a_pending_gang_do_not_change_its_earliest_start(
    town: ReplayCluster, arrivals: tuple[Arrival, ...]
) -> None:
    stage, others = played(town, arrivals)

    for waiting in others:
        inputs = asked(stage, waiting)
        found = chain.decide(inputs)
        if found.by not in {PROOF, QUOTA}:
            continue
        known = Known(group=inputs.group, demands=inputs.demands, needed=inputs.needed, equivalent=found.equivalent)
        again = chain.decide(replace(asked(stage, waiting), known=known))
        assert (again.outcome, again.by, again.needed) == (found.outcome, found.by, found.needed)
        assert (again.equivalent and again.equivalent.key) == (found.equivalent and found.equivalent.key)
