"""Workloads of all kinds come and go while Muster and the API server die; then everything is empty again.

`CHURN=3600 pytest tests/e2e/test_muster_churn.py` runs for so many seconds; `SEED` repeats the choices of a run.
"""

import os
import random
import secrets
import time
from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.controlplane.observing import eventually
from tests.e2e import herds
from tests.e2e.churns import KINDS, Churn
from tests.e2e.herds import Herd
from tests.e2e.musters import Muster

SECONDS = int(os.environ.get("CHURN", "20"))
SEED = int(os.environ.get("SEED", str(secrets.randbelow(10**6))))
QUOTA = 14
"""Devices, of 24: so that many wait."""

SECONDS_TO_EMPTY = 180.0


@pytest.fixture
def herd(control_plane: ControlPlane) -> Iterator[Herd]:
    with herds.installed(control_plane.client(), *KINDS):
        muster = Muster(control_plane).start()
        spec = {"startTimeout": "20s", "requeue": {"base": "1s", "max": "4s"}}
        with herds.of(control_plane, muster, "churn", nodes=3, devices=8, quota=QUOTA, **spec) as herd:
            yield herd
        muster.clean()


@pytest.mark.timeout(420 + 2 * SECONDS, func_only=True)
def test_after_an_hour_of_everything_nothing_is_left_and_the_books_are_right(herd: Herd) -> None:
    began = time.monotonic()
    print(f"SEED={SEED} CHURN={SECONDS}")
    churn = Churn(lab=herd.lab, herd=herd, chance=random.Random(SEED), misfortune=max(8.0, SECONDS / 60))  # noqa: S311 - a test's dice
    try:
        churn.run(SECONDS)
        churn.end()
    finally:
        print(f"SEED={SEED} {time.monotonic() - began:.0f} s, {dict(churn.counts)}")

    eventually(lambda: not left(herd), what=f"nothing is left; {left(herd)} (SEED={SEED})", within=SECONDS_TO_EMPTY)
    herd.lab.wait_used(gpus=(0, 0))
    muster = herd.lab.muster
    assert "are right" in muster.ledger("verify")
    assert "say what the cluster shows" in muster.ledger("reconcile", "--grace", "0.5")
    found = herds.OWN_TRACEBACK.search(muster.logs)
    assert found is None, muster.logs[found.start() :][:4000]


def left(herd: Herd) -> list[str]:
    """Return what is still there of workloads: what makes pods, pods, claims and gangs."""
    makers = [{"apiVersion": version, "kind": kind} for version, kind in (*KINDS, *herds.MAKERS)]
    space = herd.lab.namespace
    paths = [*(herd.path(one) for one in makers), space.pods, space.claims, herd.gangs_path]
    return [
        f"{path.rpartition('/')[2]}/{one['metadata']['name']}" for path in paths for one in herd.lab.client.items(path)
    ]
