"""What the conditions of a queue say of its quotas, meters and budgets."""

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from admission.api.kubernetes.meta import Condition
from admission.api.muster import observed
from admission.api.muster.gangs import Charge, GangReport, Phase
from admission.api.muster.status_reports import BudgetUse
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.cli.queue import list_command
from admission.dashboard.queue_tree import QueueTree
from admission.kube.writers import status_encoding
from admission.status import queue as status_queue
from admission.status.gang import StatusInputs
from admission.status.queue import QueueStatusCache, Tally
from tests.builders import NOON, a_cluster
from tests.unit.status.test_gang import GPUS, facts_of

Q = QueueName("q")


def condition(facts: StatusInputs, kind: str, queue: str = "q") -> Condition:
    """Return one condition of a queue."""
    conditions = {report.name: report.conditions for report in status_queue.queues(Tally(), facts)}
    (found,) = [condition for condition in conditions[QueueName(queue)] if condition.type == kind]
    return found


def test_a_quota_that_was_lowered_below_its_use_says_that_nothing_more_starts() -> None:
    within = condition(facts_of(a_cluster().queue("q", gpus=4), q=4), "QuotaWithin")
    over = condition(facts_of(a_cluster().queue("q", gpus=3), q=4), "QuotaWithin")

    assert (within.status, over.status, over.reason) == ("True", "False", "OverNominal")
    assert "4 gpus are used, more than the 3 that the queue can have" in over.message


def test_a_borrowing_queue_is_not_over_quota_until_the_whole_tree_is() -> None:
    def tree(rest: int) -> StatusInputs:
        builder = a_cluster().queue("top", gpus=rest)
        return facts_of(builder.queue("q", gpus=1, parent="top"), q=4)

    assert condition(tree(3), "QuotaWithin").status == "True"
    assert condition(tree(2), "QuotaWithin").status == "False"
    assert condition(tree(2), "QuotaWithin", "top").status == "False"


def test_a_meter_that_is_gone_is_named_with_what_stays_charged() -> None:
    facts = facts_of(a_cluster().queue("q", gpus=4), q=2)
    gone = replace(facts.snapshot, meters={name: m for name, m in facts.snapshot.meters.items() if name != GPUS})

    known = condition(replace(facts, snapshot=gone), "MetersKnown")

    assert condition(facts, "MetersKnown").status == "True"
    assert (known.status, known.reason) == ("False", "MeterMissing")
    assert "there is no Meter gpus: create it, or take it from spec.quotas" in known.message
    assert "the 2 that are charged stay so until their claims are gone" in known.message


def test_of_several_exhausted_budgets_the_condition_names_the_budget_that_holds_gangs() -> None:
    facts = facts_of(a_cluster().queue("q", gpus=4, budgets=[{"meter": "gpus", "hours": "1", "period": "Day"}]))
    warns = BudgetUse(meter=MeterName("claims"), limit=3600, spent=3600, start=NOON, end=NOON, on_exhausted="Warn")
    holds = BudgetUse(meter=GPUS, limit=7200, spent=7300, start=NOON, end=NOON, on_exhausted="Hold")

    told = condition(replace(facts, budgets={Q: (warns, holds)}), "BudgetLeft")

    assert (told.status, told.reason) == ("False", "BudgetExhausted")
    assert "2 gpus-hours" in told.message
    assert "nothing that needs it starts" in told.message
    assert condition(replace(facts, budgets={Q: ()}), "BudgetLeft").status == "True"
    assert condition(facts, "BudgetLeft").status == "Unknown"


def test_a_queue_shows_its_busiest_meter_and_the_gangs_below_it() -> None:
    builder = a_cluster().queue("top", quotas=[{"meter": "claims", "nominal": 9}, {"meter": "gpus", "nominal": 2}])
    builder.queue("q", gpus=2, parent="top").queue("idle", quotas=[], parent="top").queue("lone", quotas=[])
    tally = Tally()
    for name, phase in (("q", Phase.PENDING), ("q", Phase.ADMITTED), ("idle", Phase.RUNNING), ("top", Phase.EVICTED)):
        report = GangReport(uid=GangUid("g"), namespace="ns", name="g", queue=QueueName(name), size=1, phase=phase)
        tally.add(report, {})

    found = {report.name: report for report in status_queue.queues(tally, facts_of(builder, q=3))}
    shown = {str(name): status_encoding.queue_status(report, {}, now=NOON)["summary"] for name, report in found.items()}

    assert shown["top"] == {"use": "3/4 gpus", "borrowed": "0", "waiting": 1, "started": 2}
    assert shown["q"] == {"use": "3/2 gpus", "borrowed": "1", "waiting": 1, "started": 1}
    assert shown["idle"] == shown["lone"] | {"started": 1} == {"waiting": 0, "started": 1}
    (idle,) = status_queue.queues(Tally(), facts_of(a_cluster().queue("q", gpus=0), q=1))
    assert (idle.summary.meter, idle.summary.used, idle.summary.quota) == (GPUS, 1, 0)


@pytest.mark.parametrize("seed", range(40))
def test_statuses_that_are_kept_equal_those_that_are_made_from_scratch(seed: int) -> None:
    chance, tally, cache = Random(seed), Tally(), QueueStatusCache()  # noqa: S311 - no secrets
    alive: list[tuple[GangReport, Charge]] = []
    facts = _some_facts(chance)
    for number in range(30):
        match chance.choice(("come", "come", "go", "use", "nothing")):
            case "come":
                queue, phase = QueueName(chance.choice(_TREE)), chance.choice((Phase.PENDING, Phase.RUNNING))
                hold = Hold(HoldReason.QUOTA_EXCEEDED, "") if phase is Phase.PENDING else None
                uid = GangUid(f"g{number}")
                report = GangReport(uid=uid, namespace="ns", name=uid, queue=queue, size=1, phase=phase, hold=hold)
                alive.append((report, {GPUS: chance.randrange(3)}))
                tally.add(*alive[-1])
            case "go" if alive:
                tally.add(*alive.pop(chance.randrange(len(alive))), times=-1)
            case "use":
                facts = _some_facts(chance)
            case _:
                facts = replace(facts, now=facts.now + timedelta(seconds=1))
        counted = Tally()
        for one in alive:
            counted.add(*one)

        assert cache.refresh(tally, facts) == status_queue.queues(counted, facts)


_TREE = ("top", "middle", "q", "idle", "lone")


def _some_facts(chance: Random) -> StatusInputs:
    builder = a_cluster().queue("top", gpus=chance.randrange(4)).queue("middle", quotas=[], parent="top")
    builder.queue("q", gpus=2, parent="middle").queue("idle", quotas=[], parent="middle").queue("lone", quotas=[])
    return facts_of(builder, q=chance.randrange(4))


def test_only_the_statuses_of_queues_whose_gangs_changed_and_of_those_above_are_made_again() -> None:
    tally, cache = Tally(), QueueStatusCache()
    facts = _some_facts(Random(0))  # noqa: S311 - no secrets
    before = {report.name: report for report in cache.refresh(tally, facts)}
    tally.add(GangReport(uid=GangUid("g"), namespace="ns", name="g", queue=Q, size=1, phase=Phase.PENDING), {})

    after = {report.name: report for report in cache.refresh(tally, facts)}

    assert {str(name) for name, report in after.items() if report is not before[name]} == {"q", "middle", "top"}


def test_kubectl_lists_and_the_dashboard_have_the_same_sums_of_a_tree() -> None:
    """What a queue keeps for itself counts too, and a queue without a quota says what is borrowed through it."""
    builder = a_cluster().queue("top", gpus=8).queue("middle", quotas=[], parent="top")
    quota = {"meter": "gpus", "nominal": 4, "lendingLimit": 0}
    builder.queue("keeps", quotas=[quota], parent="middle").queue("q", gpus=1, parent="middle")
    facts = facts_of(builder, q=3, keeps=2)

    reports = {report.name: report for report in status_queue.queues(Tally(), facts)}
    queues = facts.snapshot.queues
    objects: list[dict[str, Any]] = [
        {
            "metadata": {"name": name},
            "spec": {
                "parent": queues[name].parent,
                "quotas": [{"meter": one.meter, "nominal": one.nominal} for one in queues[name].quotas],
            },
            "status": status_encoding.queue_status(report, {}, now=NOON),
        }
        for name, report in reports.items()
    ]
    listed = {queue.report.name: queue.sums for queue in list_command.with_sums(objects)}
    shown = QueueTree({QueueName(obj["metadata"]["name"]): observed.decode_queue(obj) for obj in objects}).sums

    assert listed == shown
    summaries = {name: (report.summary.used, report.summary.quota) for name, report in reports.items()}
    assert summaries == {"top": (5, 13), "middle": (5, 5), "keeps": (2, 4), "q": (3, 1)}
    for name, sums in listed.items():
        use = sums.uses[GPUS]
        assert (sums.busiest, use.used, use.nominal) == (GPUS, *summaries[name])
        assert use.borrowed == reports[name].summary.borrowed
    assert listed[QueueName("middle")].uses[GPUS].borrowed == 2


def test_a_queue_without_quotas_and_budgets_has_nothing_more_to_say() -> None:
    facts = facts_of(a_cluster().queue("q", quotas=[]))

    (report,) = status_queue.queues(Tally(), facts)

    assert [condition.type for condition in report.conditions] == ["Active"]


def test_a_queue_tally_counts_a_gang_until_its_report_is_subtracted() -> None:
    tally, report = (
        Tally(),
        GangReport(uid=GangUid("g"), namespace="team", name="g", queue=Q, size=1, phase=Phase.PENDING),
    )

    tally.add(report, {GPUS: 2})
    tally.add(report, {GPUS: 3})
    tally.add(report, {GPUS: 2}, -1)
    assert (tally.phases[Q], tally.pending[Q]) == ({Phase.PENDING: 1}, {GPUS: 3})

    tally.add(report, {GPUS: 3}, -1)
    assert (tally.phases[Q], tally.pending[Q]) == ({}, {})


def test_a_queue_is_starved_by_gangs_that_need_no_more_than_is_left_of_its_own_quota() -> None:
    facts, tally = facts_of(a_cluster().queue("q", gpus=4), q=1), Tally()

    def starved(reason: HoldReason, needed: int, times: int = 1) -> int:
        hold = Hold(reason, "waits")
        report = GangReport(
            uid=GangUid("g"), namespace="team", name="g", queue=Q, size=1, phase=Phase.PENDING, hold=hold
        )
        tally.add(report, {GPUS: needed}, times)
        (queue,) = status_queue.queues(tally, facts)
        return queue.starved

    counted = [
        starved(HoldReason.DEVICES_BUSY, 4),
        starved(HoldReason.DEVICES_BUSY, 3),
        starved(HoldReason.QUOTA_EXCEEDED, 1),
        starved(HoldReason.GANG_INCOMPLETE, 1),
        starved(HoldReason.BUDGET_EXHAUSTED, 1),
        starved(HoldReason.DEVICES_BUSY, 3, -1),
    ]

    assert counted == [0, 1, 2, 2, 2, 1]


def test_a_budget_of_which_a_second_is_left_is_not_exhausted() -> None:
    facts = facts_of(a_cluster().queue("q", gpus=4, budgets=[{"meter": "gpus", "hours": "1", "period": "Day"}]))

    def left(spent: int) -> str:
        use = BudgetUse(meter=GPUS, limit=3600, spent=spent, start=NOON, end=NOON)
        return condition(replace(facts, budgets={Q: (use,)}), "BudgetLeft").status

    assert [left(spent) for spent in (3599, 3600)] == ["True", "False"]


def test_a_meter_that_is_gone_and_of_which_nothing_is_charged_is_named_alone() -> None:
    facts = facts_of(a_cluster().queue("q", gpus=4))

    known = condition(replace(facts, snapshot=replace(facts.snapshot, meters={})), "MetersKnown")

    assert known.message.endswith("; no gang starts here before")


def test_a_queue_that_is_stopped_admits_nothing_nor_does_one_below_it() -> None:
    cluster = a_cluster().queue("top", gpus=2, stopPolicy="Hold").queue("q", gpus=2, parent="top").queue("free", gpus=2)
    found = {str(report.name): report.conditions[0] for report in status_queue.queues(Tally(), facts_of(cluster))}

    assert {name: (one.status, one.reason) for name, one in found.items()} == {
        "top": ("False", "Stopped"),
        "q": ("False", "Stopped"),
        "free": ("True", "Ready"),
    }
    assert found["q"].message.startswith("queue top is stopped; ")


def test_a_queue_is_active_unless_something_is_wrong_with_its_place_or_it_is_being_deleted() -> None:
    fine, lost = facts_of(a_cluster().queue("q", gpus=2)), facts_of(a_cluster().queue("q", gpus=2, parent="nobody"))
    queue = fine.snapshot.queues[Q]
    going = replace(queue, meta=replace(queue.meta, deleted=NOON))
    deleted = replace(fine, snapshot=replace(fine.snapshot, queues={Q: going}))

    assert [condition(facts, "Active").status for facts in (fine, lost, deleted)] == ["True", "False", "False"]
