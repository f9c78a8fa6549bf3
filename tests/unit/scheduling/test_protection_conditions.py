"""What queues are told of the protection of their devices."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.muster import queues
from admission.api.muster.queues import Queue
from admission.api.values import references
from admission.api.values.references import Kind, Referent
from admission.scheduling.placement import protection, protection_conditions
from admission.scheduling.placement.protection import Means, Protection, Protections
from tests.unit.scheduling.protections import protections

GPU, NIC = "gpu.example.com", "nic.example.com"
FENCED = Protection(driver=GPU, why="its devices are fenced", by=Means.FENCE, closed=True)
LOST = Protection(driver=GPU, why="a claim tolerates it")
NEW = Protection(driver=GPU, why="the fence is new", closed=True, soon=True)
COVERED = Protection(driver="", why="no pod is outside", by=Means.COVERAGE)
UNCOVERED = Protection(driver="", why="not every pod is covered")


def a_queue(**spec: Any) -> Queue:
    return queues.decode({"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}, **spec}})


CONDITIONS: dict[str, tuple[Protections, str, str, str]] = {
    "all fences hold": (protections(FENCED), "True", "Protected", f"driver {GPU}: its devices are fenced"),
    "coverage holds": (protections(rest=COVERED), "True", "Protected", "all drivers: no pod is outside"),
    "a fence is lost": (
        protections(LOST),
        "False",
        "Unprotected",
        f"driver {GPU}: a claim tolerates it; gangs that need these devices are pinned",
    ),
    "a fence is new": (protections(NEW), "False", "NotYet", "wait for a moment"),
    "coverage is lost": (
        protections(rest=UNCOVERED),
        "False",
        "Unprotected",
        "other drivers: not every pod is covered",
    ),
    "a fence holds, and coverage does not": (protections(FENCED, rest=UNCOVERED), "False", "Unprotected", "other driv"),
}


@pytest.mark.parametrize(("known", "status", "reason", "message"), CONDITIONS.values(), ids=CONDITIONS)
def test_the_protection_condition_says_why_devices_are_protected_or_not(
    known: Protections, status: str, reason: str, message: str
) -> None:
    condition = protection_conditions.condition(a_queue(), known)

    assert condition is not None
    assert (condition.type, condition.status, condition.reason) == ("DevicesProtected", status, reason)
    assert message in condition.message


def test_the_condition_refers_to_what_opens_the_devices_where_the_queue_needs_protection() -> None:
    claim = references.refer([Referent(kind=Kind.CLAIM, key="team/c")])
    known = protections(replace(LOST, references=(claim,)))

    found = protection_conditions.references(a_queue(), known)
    assert [(one.detail, one.referents) for one in found] == [("DevicesProtected", claim.referents)]
    assert protection_conditions.references(a_queue(placement="Pin"), known) == ()


def test_a_queue_that_needs_no_protection_has_no_protection_condition() -> None:
    parent = queues.decode({"metadata": {"name": "q"}, "spec": {}})

    assert protection_conditions.condition(a_queue(), protection.NOTHING) is None, "nobody asks for protection"
    assert protection_conditions.condition(a_queue(placement="Pin"), protections(FENCED)) is None
    assert protection_conditions.condition(parent, protections(FENCED)) is None


def test_a_queue_of_placement_allocate_without_protection_has_a_false_condition() -> None:
    condition = protection_conditions.condition(a_queue(placement="Allocate"), protection.NOTHING)

    assert condition is not None
    assert condition.status == "False"
    assert "docs/placement.md" in condition.message


def test_a_change_of_protection_is_reported_once() -> None:
    held = protection_conditions.holding(protections(FENCED))
    (lost,) = protection_conditions.changes(held, protections(LOST))
    (back,) = protection_conditions.changes(protection_conditions.holding(protections(LOST)), protections(FENCED))

    assert not [*protection_conditions.changes(held, protections(FENCED))]
    assert lost.message == (
        f"Muster may not allocate the devices of driver {GPU} any more: a claim tolerates it;"
        " gangs that need them are pinned from now on"
    )
    assert back.message == f"Muster may allocate the devices of driver {GPU}: its devices are fenced"
    (moment,) = protection_conditions.changes(held, protections(NEW))
    assert moment.message.endswith("gangs wait for a moment")


def test_a_change_of_coverage_is_reported_for_all_devices() -> None:
    (change,) = protection_conditions.changes(frozenset(), protections(rest=COVERED))

    assert change.message == "Muster may allocate all devices: no pod is outside"


def test_protection_that_the_settings_do_not_ask_for_is_not_reported_missing() -> None:
    assert protection_conditions.holding_by_driver(protection.NOTHING) == {}
    assert protection_conditions.holding_by_driver(protections(FENCED)) == {GPU: True}
    assert protection_conditions.holding_by_driver(protections(LOST, rest=COVERED)) == {
        GPU: False,
        protection_conditions.EVERY: True,
    }
