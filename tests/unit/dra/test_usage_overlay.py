"""Devices in use in layers over a cluster state."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from admission.api.kubernetes.devices import DeviceId
from admission.dra.equivalence.usage_overlay import AllocatedOverlay, CombinedOverlay
from admission.dra.requests.device_use import DeviceUse, Holder, Shared
from admission.dra.state.what_if import Arrival, WhatIfSeries
from tests.unit.dra.clusters import DRIVER, a_cluster

FIRST, SECOND, THIRD, FOURTH = DEVICES = [DeviceId(DRIVER, "a", f"gpu-{at}") for at in range(4)]
OWN, SHARE = DeviceUse(SECOND), DeviceUse(THIRD, shared=True, share={"memory": 1})


def layers() -> tuple[AllocatedOverlay, AllocatedOverlay]:
    """Two layers over a cluster state in which the first device is taken, and the third shared."""
    cluster = a_cluster().node("a", gpus=4).taken("a", 0).cluster()
    sharer = Arrival(gang="g", uses=(DeviceUse(THIRD, shared=True, share={"memory": 5}),))
    below = AllocatedOverlay(WhatIfSeries("s").cluster(cluster, arrived=[sharer]))
    return below, AllocatedOverlay(below)


def test_a_layer_adds_to_those_below_and_changes_none_until_it_is_committed() -> None:
    below, above = layers()

    above.add([OWN])
    assert set(above.used(DEVICES)) == {FIRST, SECOND, THIRD}
    above.add([SHARE])
    assert [above.is_taken(device) for device in DEVICES] == [True, True, False, False]
    assert [below.is_taken(device) for device in DEVICES] == [True, False, False, False]
    assert (above.shares_of(THIRD), below.shares_of(THIRD)) == ([{"memory": 5}, {"memory": 1}], [{"memory": 5}])
    assert set(above.used(DEVICES)) == {FIRST, SECOND, THIRD}
    assert set(below.used(DEVICES)) == {FIRST, THIRD}

    above.commit()
    assert below.is_taken(SECOND)
    assert below.shares_of(THIRD) == above.shares_of(THIRD) == [{"memory": 5}, {"memory": 1}]


def test_an_overlay_removes_the_use_added_last() -> None:
    below, above = layers()
    above.add([SHARE, OWN])

    above.remove([OWN, SHARE])

    assert not above.is_taken(SECOND)
    assert above.shares_of(THIRD) == below.shares_of(THIRD)
    assert not above.has_any
    assert above.has_shares


def test_each_change_of_an_overlay_or_of_a_lower_one_has_its_own_stamp() -> None:
    below, above = layers()
    stamps = [above.stamp]
    changes: list[Callable[[], None]] = [
        partial(above.add, [OWN]),
        partial(above.remove, [OWN]),
        partial(above.add, [OWN]),
        above.commit,
        partial(below.add, [SHARE]),
        partial(below.remove, [SHARE]),
    ]
    for change in changes:
        assert above.stamp == stamps[-1]
        change()
        stamps.append(above.stamp)

    assert len(set(stamps)) == len(stamps)


def test_an_overlay_leaves_out_what_given_claims_use_themselves() -> None:
    cluster = a_cluster().node("a", gpus=4).taken("a", 0, claim="team/own").taken("a", 1, claim="team/other").cluster()
    shares = tuple(
        Shared(share={"memory": amount}, holder=Holder(claim=claim))
        for amount, claim in ((2, "team/own"), (3, "team/x"))
    )
    cluster = replace(cluster, shares={THIRD: shares})
    overlay = CombinedOverlay(cluster, {"team/own"})

    overlay.add([DeviceUse(FOURTH), SHARE])

    assert [overlay.is_taken(device) for device in DEVICES] == [False, True, False, True]
    assert overlay.shares_of(THIRD) == [{"memory": 3}, {"memory": 1}]
    assert set(overlay.used(DEVICES)) == {SECOND, THIRD, FOURTH}
    (takers,) = overlay.takers()
    assert [device in takers for device in DEVICES] == [False, True, False, True]
