"""Random gangs on a real control plane whose Muster and API server are killed, and whose devices others want as well.

`GANGS=200 pytest tests/e2e/test_muster_under_fire.py` runs longer; `SEED` repeats the choices that a failure names.
"""

import os
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ControlPlane, building, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import medleys
from tests.e2e.fires import OUTSIDE, Fire
from tests.e2e.labs import Lab, partitioned_devices, plain, shared
from tests.e2e.musters import Muster
from tests.e2e.witnesses import Hardware, Witness

GANGS = int(os.environ.get("GANGS", "8"))
SEED = int(os.environ.get("SEED", str(secrets.randbelow(10**6))))
SECONDS_TO_END = 240.0
START_TIMEOUT = 20
IN_PART = START_TIMEOUT + 40
"""Seconds: no gang may run in part for longer than its start timeout, and a death or two of those who take it back."""

MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "behind a fence": ("afire.test", {"fence": ["afire.test"]}),
    "under coverage": ("covered.test", {"coverage": True}),
    "pinned": ("pinned.test", {}),
}


@pytest.fixture(params=[*MODES])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lab(mode: str, control_plane: ControlPlane, namespace: Namespace) -> Iterator[Lab]:
    driver, settings = MODES[mode]
    with Muster(control_plane, **settings) as muster:
        muster.start()
        lab = Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=driver)
        yield lab
        muster.unprotect()  # the process may have killed itself: one that runs lets the queue go
        lab.clear()


def equip(lab: Lab) -> Hardware:
    """Set up nodes that have devices of every kind each."""
    for number in range(medleys.NODES):
        cards = plain(medleys.CARDS, prefix="card")
        for at, card in enumerate(cards):
            card["attributes"] = {"profile": {"string": "card"}, "numa": {"int": at // 2}}
        parts, counters = partitioned_devices(1)
        for one in (shares := shared(1)):
            one["attributes"] = {"profile": {"string": "share"}}
            one["name"] = "share-0"
        lab.node(f"n{number}", [*cards, *parts, *shares], counters)
    lab.device_class()
    lab.meter("gpus", count={})
    return Hardware.of(lab.driver, lab.hardware)


def an_outsiders_request(lab: Lab) -> Manifest:
    expression = f"device.attributes['{lab.driver}'].profile == 'card'"
    selectors = [{"cel": {"expression": expression}}]
    return {"name": "card", "exactly": {"deviceClassName": lab.driver, "count": 1, "selectors": selectors}}


@pytest.mark.timeout(300 + 8 * GANGS, func_only=True)
def test_whoever_dies_every_gang_runs_whole_and_the_books_are_right(lab: Lab, mode: str) -> None:
    began = time.monotonic()
    print(f"{mode}: SEED={SEED} GANGS={GANGS}")
    settings = MODES[mode][1]
    witness = Witness(lab.client, equip(lab))
    everywhere: dict[str, Any] = {"namespaceSelector": {}} if settings.get("coverage") else {}
    quota = {lab.meters[0]: str(medleys.QUOTA)}
    rules = {"startTimeout": f"{START_TIMEOUT}s", "requeue": {"base": "1s", "max": "4s"}, "holdAt": "Auto"}
    lab.found(quota, **rules, **everywhere)
    others = Namespace(name="default", client=lab.client)
    others.create(workloads.claim_template(OUTSIDE, an_outsiders_request(lab)))
    fire = Fire(lab=lab, others=others, witness=witness, settings=settings)

    try:
        with witness.watching():
            parts = lab.control_plane.version not in building.ON_DEMAND
            fire.run(medleys.script(SEED, GANGS, lab.driver, parts=parts))
            come_to_an_end(fire, mode)
    finally:
        lab.client.delete(f"{others.pods}?gracePeriodSeconds=0&labelSelector={OUTSIDE}")
        lab.client.delete(f"{others.templates}/{OUTSIDE}")
        print(f"{mode}: SEED={SEED} {time.monotonic() - began:.0f} s, {told(fire)}")

    judge(fire)


def come_to_an_end(fire: Fire, mode: str) -> None:
    """Every gang that can run has run, and every other is held for a true reason until it is deleted."""
    lab = fire.lab

    def all_ended() -> bool:
        fire.forget_ended()
        return not fire.alive

    what = lambda: f"every gang has run whole (SEED={SEED}): {[lab.team.standing(name) for name in fire.alive]}"  # noqa: E731
    eventually(all_ended, what=what, within=SECONDS_TO_END)
    for name, shape in fire.held.items():
        lab.team.wait_held(name, shape.held)
    for name in [*fire.held]:
        fire.delete(name)
    if mode != "behind a fence":
        eventually(lambda: outsiders_left(fire) == 0, what="everybody else has run as well")
    lab.client.delete(f"{fire.others.pods}?gracePeriodSeconds=0&labelSelector={OUTSIDE}")
    lab.wait_used(gpus=(0, 0))


def outsiders_left(fire: Fire) -> int:
    pods = fire.lab.client.items(f"{fire.others.pods}?labelSelector={OUTSIDE}")
    return sum(pod["status"]["phase"] != "Succeeded" for pod in pods)


def judge(fire: Fire) -> None:
    muster, witness = fire.lab.muster, fire.witness
    witness.finish()
    assert not witness.wrong, f"devices that more claims had than there are (SEED={SEED})"
    too_long = {
        name: seconds
        for name, seconds in witness.in_part.items()
        if seconds > IN_PART and name not in fire.disturbed | fire.deleted
    }
    assert not too_long, f"gangs that ran in part (SEED={SEED})"
    assert witness.versions > GANGS
    assert "are right" in muster.ledger("verify")
    assert "say what the cluster shows" in muster.ledger("reconcile", "--grace", "0.5")
    assert not muster.defect


def told(fire: Fire) -> str:
    """Sum up what happened, for who reads the log of a long run."""
    witness = fire.witness
    seen = {"versions of claims": witness.versions, "watches": witness.gaps, "robbed": witness.robbed}
    seen["longest in part (s)"] = max(witness.in_part.values(), default=0)
    return ", ".join(f"{what}: {number}" for what, number in {**fire.counts, **seen}.items())
