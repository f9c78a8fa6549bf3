"""What a Queue says of budgets, fair sharing, preemption and runtimes, and which mistakes are told with their mend."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from admission.api.muster import queues
from admission.api.muster.preferences import DeviceKind, Preferences, WhenCanBorrow
from admission.api.muster.queues import (
    BorrowPolicy,
    BorrowWithinCohort,
    Budget,
    FairSharing,
    Lending,
    MemberKind,
    OnExhausted,
    Period,
    Preemption,
    PriorityClass,
    Queue,
    Reclaim,
    Scope,
    Within,
    WithinQueue,
)
from admission.api.values import quantities, time_zones
from admission.errors import MalformedObjectError
from tests.unit.api.crds import a_budget, a_queue, a_quota

START, END = "2026-10-01T00:00:00+02:00", "2027-04-01T00:00:00Z"


def read(obj: Any) -> Queue:
    return queues.decode(obj)


def budget(**fields: Any) -> Budget:
    (found,) = read(a_budget(**fields)).budgets
    return found


def test_a_queue_that_says_nothing_has_no_budget_and_takes_no_part_in_fair_sharing() -> None:
    queue = read(a_queue())

    assert (queue.budgets, queue.fair_sharing, queue.max_runtime, queue.default_runtime) == ((), None, None, None)
    assert queue.preemption == Preemption(within_queue=WithinQueue.NEVER, reclaim=Reclaim.NEVER)


def test_a_budget_of_a_period_has_defaults() -> None:
    found = budget(hours="50k", period="Month")

    assert found == Budget(meter="gpus", seconds=50_000 * 3600, period=Period.MONTH)  # type: ignore[arg-type]
    assert (found.time_zone, found.on_exhausted, found.scope) == ("UTC", OnExhausted.HOLD, Scope.CLUSTER)


def test_a_window_is_kept_in_utc_and_whole_seconds() -> None:
    found = budget(start="2026-10-01T00:00:00.999+02:00", end=END, onExhausted="Warn", scope="Global")

    assert (found.period, found.start) == (None, datetime(2026, 9, 30, 22, tzinfo=UTC))
    assert found.end == datetime(2027, 4, 1, tzinfo=UTC)
    assert (found.on_exhausted, found.scope) == (OnExhausted.WARN, Scope.GLOBAL)


HOURS = {
    "1": 3600,
    "0.5": 1800,
    "0.0025": 9,
    "500m": 1800,
    "1Ki": 1024 * 3600,
    "1.5k": 5_400_000,
    "9223372036854775808": 2**63 * 3600,
    "1e27": 10**27 * 3600,
}


@pytest.mark.parametrize(("text", "seconds"), HOURS.items())
def test_budget_hours_are_exact(text: str, seconds: int) -> None:
    assert budget(hours=text, period="Day").seconds == seconds


def test_fair_sharing_preemption_and_runtimes_are_read() -> None:
    queue = read(
        a_queue(
            fairSharing={"weight": "0.5", "halfLife": "168h"},
            preemption={
                "withinQueue": "LowerOrNewerEqualPriority",
                "reclaim": "Any",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -5},
            },
            lending="Always",
            priorityClasses=[{"name": "urgent", "value": 100}],
            maxRuntime="72h",
            defaultRuntime="4h",
        )
    )

    assert queue.fair_sharing == FairSharing(weight=Fraction(1, 2), half_life=timedelta(days=7))
    assert queue.preemption == Preemption(
        within_queue=WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY,
        reclaim=Reclaim.ANY,
        borrow_within_cohort=BorrowWithinCohort(policy=BorrowPolicy.LOWER_PRIORITY, max_priority_threshold=-5),
    )
    assert queue.lending is Lending.ALWAYS
    assert queue.priority_classes == (PriorityClass(name="urgent", value=100),)
    assert (queue.max_runtime, queue.default_runtime) == (timedelta(hours=72), timedelta(hours=4))


def test_an_empty_fair_sharing_takes_part_with_weight_1_and_present_use() -> None:
    assert read(a_queue(fairSharing={})).fair_sharing == FairSharing(weight=Fraction(1), half_life=timedelta(0))


def test_preferences_are_read_in_their_order_and_borrow_by_default() -> None:
    kinds = [{"name": name, "deviceClasses": ["gpu"]} for name in ("b", "a")]
    found = read(a_queue(preferences={"kinds": [{**kinds[0], "selector": "true"}, kinds[1]]})).preferences

    kind = DeviceKind(name="b", classes=("gpu",), selector="true")
    assert found == Preferences(kinds=(kind, DeviceKind(name="a", classes=("gpu",))))
    assert found.when_can_borrow is WhenCanBorrow.BORROW
    assert read(a_queue()).preferences is None


def test_members_are_read_with_their_weights() -> None:
    spec = {"within": {"by": "Label", "label": "team", "weights": [{"name": "red", "weight": "0.5"}]}}
    found = read(a_queue(fairSharing=spec)).fair_sharing

    assert found == FairSharing(within=Within(by=MemberKind.LABEL, label="team", weights=(("red", Fraction(1, 2)),)))


AMOUNTS = {
    "9223372036854775808": 2**63,
    "1e27": 10**27,
    "1000000000000000000000000000": quantities.MOST,
    "1.5Ki": 1536,
}


@pytest.mark.parametrize(("text", "amount"), AMOUNTS.items())
def test_a_quota_is_exact_beyond_64_bits(text: str, amount: int) -> None:
    assert read(a_quota(nominal=text)).quotas[0].nominal == amount


QUOTA, BUDGET = "spec.quotas[0].", "spec.budgets[0]."
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "a negative quota": (a_quota(nominal=-1), QUOTA + "nominal", "is negative; write 0 for none"),
    "a quota out of this world": (a_quota(nominal="1e400"), QUOTA + "nominal", "more than can be counted, 10^27"),
    "one more than the most": (a_quota(nominal=str(10**27 + 1)), QUOTA + "nominal", "more than can be counted"),
    "an infinite quota": (a_quota(nominal=float("inf")), QUOTA + "nominal", "'inf' is not a Kubernetes quantity"),
    "a quota finer than its unit": (a_quota(nominal="0.0000000001"), QUOTA + "nominal", "not a whole number"),
    "a quota finer than its unit, as a number": (a_quota(nominal=1e-10), QUOTA + "nominal", "not a whole number"),
    "an exponent as a bomb": (a_quota(nominal="1e999999999"), QUOTA + "nominal", "is not a Kubernetes quantity"),
    "digits as a bomb": (a_quota(nominal="9" * 10**6), QUOTA + "nominal", "…' is not a Kubernetes quantity"),
    "a limit out of this world": (a_quota(borrowingLimit="1e28"), QUOTA + "borrowingLimit", "more than can be counted"),
    "hours below zero": (a_budget(hours="-1", period="Day"), BUDGET + "hours", "must be more than 0"),
    "no hours at all": (a_queue(budgets=[{"meter": "m", "period": "Day"}]), BUDGET + "hours", "is required"),
    "hours that are no whole seconds": (a_budget(hours="0.0001", period="Day"), BUDGET + "hours", "whole number of"),
    "hours out of this world": (a_budget(hours="1e35", period="Day"), BUDGET + "hours", "more than the ledger can"),
    "a budget without a span": (a_budget(), BUDGET + "period", "either a period or both start and end"),
    "a budget of half a window": (a_budget(start=START), BUDGET + "period", "complete the other"),
    "a budget with a period and an end": (a_budget(period="Day", end=END), BUDGET + "period", "remove the one"),
    "a period that does not exist": (a_budget(period="Decade"), BUDGET + "period", "not one of Day, Week, Month"),
    "a window that ends as it starts": (a_budget(start=START, end=START), BUDGET + "end", "is not later than start"),
    "a window that ends first": (a_budget(start=END, end=START), BUDGET + "end", "is not later than start"),
    "a time without a zone": (a_budget(start="2026-10-01T00:00:00", end=END), BUDGET + "start", "end it with Z"),
    "a time before all times": (a_budget(start="0001-01-01T00:00:00+14:00", end=END), BUDGET + "start", "1 to 9999"),
    "no time": (a_budget(start="tomorrow", end=END), BUDGET + "start", "tomorrow"),
    "a zone misspelt": (
        a_budget(period="Day", timeZone="Europe/Berln"),
        BUDGET + "timeZone",
        "'Europe/Berln' is not a known time zone; did you mean Europe/Berlin",
    ),
    "a zone in another case": (a_budget(period="Day", timeZone="utc"), BUDGET + "timeZone", "did you mean UTC"),
    "a city alone": (a_budget(period="Day", timeZone="Tokyo"), BUDGET + "timeZone", "did you mean Asia/Tokyo"),
    "a zone like none": (a_budget(period="Day", timeZone="Mars"), BUDGET + "timeZone", "an IANA name such as"),
    "a zone as a path": (a_budget(period="Day", timeZone="../zones"), BUDGET + "timeZone", "not a known time zone"),
    "a zone as a bomb": (a_budget(period="Day", timeZone="Z" * 10**6), BUDGET + "timeZone", "not a known time zone"),
    "the same budget twice": (
        a_queue(budgets=[{"meter": "m", "hours": hours, "period": "Day"} for hours in (1, 2)]),
        "spec.budgets[1].meter",
        "only the smaller could ever bind",
    ),
    "a negative weight": (a_queue(fairSharing={"weight": "-1"}), "spec.fairSharing.weight", "come after all others"),
    "a weight out of this world": (a_queue(fairSharing={"weight": "1e400"}), "spec.fairSharing.weight", "too large"),
    "a half-life of nothing": (a_queue(fairSharing={"halfLife": "0s"}), "spec.fairSharing.halfLife", "longer than 0s"),
    "a negative half-life": (a_queue(fairSharing={"halfLife": "-1h"}), "spec.fairSharing.halfLife", "not a duration"),
    "members of nothing": (a_queue(fairSharing={"within": {}}), "spec.fairSharing.within.by", "is required"),
    "members by a label that is not named": (
        a_queue(fairSharing={"within": {"by": "Label"}}),
        "spec.fairSharing.within.label",
        "goes together with by: Label",
    ),
    "a label for members that are users": (
        a_queue(fairSharing={"within": {"by": "User", "label": "team"}}),
        "spec.fairSharing.within.label",
        "goes together with by: Label",
    ),
    "a member twice": (
        a_queue(fairSharing={"within": {"by": "User", "weights": [{"name": "ann", "weight": 1}] * 2}}),
        "spec.fairSharing.within.weights[1].name",
        "named twice",
    ),
    "preemption to borrow without reclaiming": (
        a_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "spec.preemption.borrowWithinCohort",
        "needs a reclaim other than Never",
    ),
    "preemption by shares without reclaiming": (
        a_queue(preemption={"byShares": "LessThanInitialShare"}),
        "spec.preemption.byShares",
        "needs a reclaim other than Never",
    ),
    "preferences of nothing": (a_queue(preferences={}), "spec.preferences.kinds", "give 1 to 16, the preferred"),
    "too many kinds": (
        a_queue(preferences={"kinds": [{"name": f"k{at}", "deviceClasses": ["gpu"]} for at in range(17)]}),
        "spec.preferences.kinds",
        "has 17 entries",
    ),
    "a kind twice": (
        a_queue(preferences={"kinds": [{"name": "a", "deviceClasses": ["gpu"]}] * 2}),
        "spec.preferences.kinds[1].name",
        "named twice",
    ),
    "a kind of no class": (
        a_queue(preferences={"kinds": [{"name": "a"}]}),
        "spec.preferences.kinds[0].deviceClasses",
        "is required: the DeviceClasses",
    ),
    "what Kueue calls it": (
        a_queue(preferences={"kinds": [{"name": "a", "deviceClasses": ["gpu"]}], "whenCanBorrow": "TryNextFlavor"}),
        "spec.preferences.whenCanBorrow",
        "'TryNextFlavor' is not one of Borrow, TryNext",
    ),
    "a priority class twice": (
        a_queue(priorityClasses=[{"name": "urgent", "value": value} for value in (1, 2)]),
        "spec.priorityClasses[1].name",
        "named twice",
    ),
    "preemption of everybody": (
        a_queue(preemption={"withinQueue": "Any"}),
        "spec.preemption.withinQueue",
        "'Any' is not one of Never, LowerPriority",
    ),
    "a label's value that cannot be": (
        a_queue(namespaceSelector={"matchLabels": {"team": "b c"}}),
        "spec.namespaceSelector.matchLabels[team]",
        "'b c' is not a label's value",
    ),
    "a label's key that cannot be": (
        a_queue(namespaceSelector={"matchExpressions": [{"key": "a/b/c", "operator": "Exists"}]}),
        "spec.namespaceSelector.matchExpressions[0].key",
        "'a/b/c' is not a label's key",
    ),
    "no value to choose from": (
        a_queue(namespaceSelector={"matchExpressions": [{"key": "team", "operator": "In"}]}),
        "spec.namespaceSelector.matchExpressions[0].values",
        "needs at least one value",
    ),
    "no time to run": (a_queue(maxRuntime="0s"), "spec.maxRuntime", "longer than 0s"),
    "a longer default than the maximum": (
        a_queue(maxRuntime="1h", defaultRuntime="61m"),
        "spec.defaultRuntime",
        "longer than maxRuntime; shorten",
    ),
    "a duration as a bomb": (a_queue(maxRuntime="1h" * 10**5), "spec.maxRuntime", "too long"),
}


@pytest.mark.parametrize(("obj", "field", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_in_a_queue_is_reported_with_its_field_and_remedy(obj: Any, field: str, message: str) -> None:
    with pytest.raises(MalformedObjectError) as caught:
        read(obj)

    (problem,) = caught.value.problems
    assert problem.field == field
    assert message in problem.message
    assert len(problem.message) < 250


DAY = {"meter": "m", "hours": 1, "period": "Day"}
TWO: dict[str, dict[str, Any]] = {
    "of another period": {"period": "Month"},
    "that only warns": {"onExhausted": "Warn"},
    "for all clusters": {"scope": "Global"},
    "of another meter": {"meter": "n"},
    "whose day begins elsewhere": {"timeZone": "Asia/Tokyo"},
}


@pytest.mark.parametrize("second", TWO.values(), ids=TWO)
def test_a_queue_may_have_a_second_budget(second: dict[str, Any]) -> None:
    assert len(read(a_queue(budgets=[DAY, DAY | second])).budgets) == 2


def test_every_zone_of_the_package_is_found_under_its_name() -> None:
    assert len(time_zones.names()) > 400
    assert [name for name in time_zones.names() if time_zones.find(name) is None] == []
