"""Statuses that are kept from cycle to cycle: when one is built again."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from admission.accounting.books import Book
from admission.api.kubernetes.meta import Meta
from admission.api.muster.gangs import Evicted, Gang, Phase
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, QueueName, Uid
from admission.api.values.reasons import EvictionReason, Hold, HoldReason
from admission.quota.tree import Tree
from admission.scheduling.backfill import reservations
from admission.scheduling.checks.chain import Decision
from admission.status import gang
from admission.status.gang import StatusInputs
from admission.status.gang_cache import GangStatusCache
from admission.workloads import gangs
from admission.workloads.gangs import Group
from tests.builders import NOON, a_cluster

INSTANT = timedelta(microseconds=1)
NO_GANGS: Mapping[GangUid, Group] = {}


def inputs(snapshot: Snapshot, **more: Any) -> StatusInputs:
    return StatusInputs(snapshot=snapshot, book=Book(), tree=Tree(), now=NOON, **more)


def test_the_object_of_an_evicted_gang_is_over_as_soon_as_its_time_has_come_though_nothing_else_changes() -> None:
    meta = Meta(name="own", namespace="team", labels={names.MANAGED_BY: names.FIELD_MANAGER})
    evicted = Evicted(reason=EvictionReason.PREEMPTED, message="", at=NOON)
    record = Gang(meta=meta, queue=QueueName("q"), size=2, phase=Phase.EVICTED, evicted=evicted)
    facts, until = inputs(Snapshot(gangs={"team/own": record})), NOON + gang.PREEMPTED_RETENTION

    for now, over in ((until - INSTANT, False), (until, True), (until + INSTANT, True)):
        cache = GangStatusCache()
        cache.refresh(NO_GANGS, (), facts, [])
        assert [report.over for report in cache.gangs] == [False]
        cache.refresh(NO_GANGS, (), replace(facts, now=now), [])
        assert [report.over for report in cache.gangs] == [over]


def test_statuses_are_in_order_of_names_whatever_comes_and_goes() -> None:
    cache, chance = GangStatusCache(), Random(1)  # noqa: S311 - no secrets
    records = {f"team/g{number}": _record(f"g{number}") for number in range(500)}
    for number in range(60):
        records = dict(records)
        for _ in range(chance.choice((0, 1, 2, 40))):
            records.pop(chance.choice([*records]))
            records[f"team/new-{number}"] = _record(f"new-{number}")
            changed = chance.choice([*records])
            records[changed] = replace(records[changed], evictions=number)
        facts, fresh = inputs(Snapshot(gangs=records)), GangStatusCache()
        cache.refresh(NO_GANGS, (), facts, [])
        fresh.refresh(NO_GANGS, (), facts, [])

        assert cache.gangs == fresh.gangs == tuple(sorted(fresh.gangs, key=lambda report: report.key))


def _record(name: str) -> Gang:
    return Gang(meta=Meta(name=name, namespace="team"), queue=QueueName("q"), size=1)


def test_a_status_that_names_another_gang_gets_its_uid_once_the_object_of_that_gang_is_there() -> None:
    snapshot = a_cluster().job("train", queue="q").snapshot()
    (group,) = gangs.groups(snapshot, {})
    held = Decision(group=group, outcome=Hold(HoldReason.DEVICES_BUSY, "waits"), position=1)
    told = {"decisions": {group.uid: held}, "estimates": {group.uid: reservations.pending(NOON, ["team/first"])}}
    first = Gang(meta=Meta(name="first", namespace="team", uid=Uid("u")), queue=QueueName("q"), size=1)
    cache = GangStatusCache()

    for known, uid in ((snapshot, ""), (replace(snapshot, gangs={"team/first": first}), "u")):
        cache.refresh({group.uid: group}, (), inputs(known, **told), [])
        (report,) = [one for one in cache.gangs if one.start_references]
        assert [one.uid for one in report.start_references[0].referents] == [uid]


def test_only_new_and_changed_statuses_of_gangs_without_pods_are_reported_again() -> None:
    one, other = (Gang(meta=Meta(name=name, namespace="team"), queue=QueueName("q"), size=1) for name in ("a", "b"))
    cache = GangStatusCache()
    cache.refresh(NO_GANGS, (), inputs(Snapshot(gangs={"team/a": one})), [])

    again = cache.refresh(NO_GANGS, (), inputs(Snapshot(gangs={"team/a": one, "team/b": other})), [])

    assert [report.key for report in again] == ["team/b"]
    assert [report.key for report in cache.gangs] == ["team/a", "team/b"]
