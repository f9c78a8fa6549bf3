"""Who picks the devices of a gang: what was asked for, and what their protection allows."""

from dataclasses import replace

import pytest

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.meta import Meta
from admission.api.muster.gangs import Gang
from admission.api.muster.ledger_entries import Holding
from admission.api.muster.queues import PlacementMode, Queue
from admission.api.values import names
from admission.api.values.names import QueueName, Uid
from admission.api.values.reasons import Hold, HoldReason
from admission.scheduling.placement import mode as placement_mode
from admission.scheduling.placement.mode import Chosen
from admission.scheduling.placement.protection import Means, Protection, Protections
from tests.unit.scheduling.protections import protections

GPU, NIC = "gpu.example.com", "nic.example.com"
AUTO, ALLOCATE, PIN, COUNT = (
    PlacementMode.AUTO,
    PlacementMode.ALLOCATE,
    PlacementMode.PIN,
    PlacementMode.COUNT,
)


def holding(*drivers: str, claim: str = "c") -> Holding:
    given = (RequestDevice(request="r", device=DeviceId(driver, "p", "d")) for driver in drivers)
    return Holding(claim_uid=Uid(claim), claim="team/c", devices=tuple(given), charge={})


OPEN = protections()
FENCED = protections(Protection(driver=GPU, why="its devices are fenced", by=Means.FENCE, closed=True))
SOON = protections(Protection(driver=GPU, why="the fence is new", closed=True, soon=True))
LOST = protections(Protection(driver=GPU, why="a claim tolerates it"))
STALLED = protections(Protection(driver=GPU, why="it cannot be taken away", closed=True))
COVERED = protections(rest=Protection(driver="", why="all is covered", by=Means.COVERAGE))

CHOSEN: dict[str, tuple[PlacementMode, Holding, Protections, PlacementMode, str, bool]] = {
    "behind a fence Muster allocates": (AUTO, holding(GPU), FENCED, ALLOCATE, f"driver {GPU}: its devices", False),
    "and where that was asked for": (ALLOCATE, holding(GPU), FENCED, ALLOCATE, "fenced", False),
    "under coverage every driver is protected": (AUTO, holding(GPU, NIC), COVERED, ALLOCATE, f"{NIC}: all is", False),
    "without protection gangs are pinned": (AUTO, holding(GPU), OPEN, PIN, "nothing keeps kube-scheduler off", False),
    "and told so, where they asked for more": (ALLOCATE, holding(GPU), LOST, PIN, "a claim tolerates it", True),
    "who asks for Pin gets it, protected or not": (PIN, holding(GPU), COVERED, PIN, "Pin was asked for", False),
    "who asks for Count gets it": (COUNT, holding(GPU), FENCED, COUNT, "only the quota counts", False),
    "without devices there is nothing to allocate": (ALLOCATE, holding(), FENCED, PIN, "takes no devices", False),
    "claims for extended resources are kube-scheduler's to make": (
        ALLOCATE,
        holding(GPU, claim=names.extended_claim(Uid("p"))),
        COVERED,
        PIN,
        "extended resources",
        True,
    ),
}


@pytest.mark.parametrize(("wanted", "held", "known", "mode", "reason", "fell_back"), CHOSEN.values(), ids=CHOSEN)
def test_the_placement_mode_follows_queue_and_fence(
    wanted: PlacementMode, held: Holding, known: Protections, mode: PlacementMode, reason: str, *, fell_back: bool
) -> None:
    chosen = placement_mode.mode(wanted, [held], known)

    assert isinstance(chosen, Chosen)
    assert chosen.mode is mode
    assert reason in chosen.reason
    assert chosen.fell_back is fell_back


HELD: dict[str, tuple[PlacementMode, Holding, Protections, HoldReason, str]] = {
    "who is pinned behind a fence would wait for ever": (
        PIN,
        holding(GPU),
        FENCED,
        HoldReason.NO_FEASIBLE_PLACEMENT,
        "Pin was asked for; mend that, or take the driver from the setting `fence`",
    ),
    "so would who asks for extended resources": (
        AUTO,
        holding(GPU, claim=names.extended_claim(Uid("p"))),
        FENCED,
        HoldReason.NO_FEASIBLE_PLACEMENT,
        "kube-scheduler makes the claims for extended resources itself",
    ),
    "and who needs a driver that is not protected beside one that is": (
        AUTO,
        holding(GPU, NIC),
        FENCED,
        HoldReason.NO_FEASIBLE_PLACEMENT,
        f"driver {NIC}: nothing keeps kube-scheduler off its devices",
    ),
    "a fence that counts in a moment is waited for": (
        AUTO,
        holding(GPU),
        SOON,
        HoldReason.WAITING_FOR_CLAIMS,
        "the fence is new",
    ),
    "a fence that does not count and cannot be taken away holds everybody": (
        AUTO,
        holding(GPU),
        STALLED,
        HoldReason.NO_FEASIBLE_PLACEMENT,
        "it cannot be taken away",
    ),
}


@pytest.mark.parametrize(("wanted", "held", "known", "reason", "message"), HELD.values(), ids=HELD)
def test_a_gang_is_held_when_its_driver_is_not_fenced(
    wanted: PlacementMode, held: Holding, known: Protections, reason: HoldReason, message: str
) -> None:
    hold = placement_mode.mode(wanted, [held], known)

    assert isinstance(hold, Hold)
    assert hold.reason is reason
    assert message in hold.message
    assert hold.details == {"driver": GPU}


def test_a_search_for_devices_is_worthwhile_where_some_may_be_allocated() -> None:
    assert placement_mode.may_allocate(AUTO, FENCED)
    assert placement_mode.may_allocate(ALLOCATE, COVERED)
    assert placement_mode.may_allocate(AUTO, SOON)
    assert not placement_mode.may_allocate(AUTO, OPEN)
    assert not placement_mode.may_allocate(PIN, FENCED)


def test_the_placement_of_a_gang_object_written_by_a_user_goes_before_that_of_the_queue() -> None:
    queue = Queue(meta=Meta(name="q"), placement=PIN)
    written = Gang(meta=Meta(name="g"), queue=QueueName("q"), size=1, placement=ALLOCATE)
    made = replace(written, meta=Meta(name="g", labels={names.MANAGED_BY: names.FIELD_MANAGER}))

    assert placement_mode.requested(written, queue) is ALLOCATE
    assert placement_mode.requested(replace(written, placement=None), queue) is PIN
    assert placement_mode.requested(made, queue) is PIN
    assert placement_mode.requested(None, queue) is PIN
