"""Workloads of all kinds come and go while Muster and the API server die; then everything is empty again.

Whole gangs are evicted for others meanwhile, and workloads are held as a whole, resumed and suspended again.

`CHURN=3600 pytest tests/e2e/test_muster_churn.py` runs for so many seconds; `SEED` repeats the choices of a run.
"""

import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest

from admission.accounting import seat_transfer
from admission.api.muster.ledger_entries import Kind
from admission.api.values import names
from admission.api.values.reasons import EvictionReason
from tests.controlplane import ApiError, ControlPlane, fleet
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.e2e import herds, musters
from tests.e2e.churns import GATED, KINDS, QUOTAS, TREE, URGENT, WHOLE, Churn
from tests.e2e.herds import Herd
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP
from tests.e2e.witnesses import Hardware, Witness
from tests.standins import an_object

SECONDS = int(os.environ.get("CHURN", "20"))
SEED = int(os.environ.get("SEED", str(secrets.randbelow(10**6))))
NODES, DEVICES = 2, 7
"""As many devices in all as the queues have together: so that many gangs wait."""

RULES: dict[str, Any] = {
    "parent": TREE,
    "preemption": {"withinQueue": "LowerPriority", "reclaim": "Any"},
    "startTimeout": "20s",
    "requeue": {"base": "1s", "max": "4s"},
}
PREEMPTED, RECLAIMED = EvictionReason.PREEMPTED.value, EvictionReason.RECLAIMED.value
RESUMED, SUSPENDED_AGAIN = "held and resumed", "suspended again"
SECONDS_TO_EMPTY = 180.0
SECONDS_PER_TRIAL = 300
"""In how many seconds there is at least one of each kind of trial, beside those by construction."""


@pytest.fixture
def herd(control_plane: ControlPlane) -> Iterator[Herd]:
    client = control_plane.client()
    with (
        herds.installed(client, *KINDS),
        fleet.installed(client, [fleet.priority_class(URGENT)]),
        musters.running(control_plane) as muster,
    ):
        _queue(control_plane, TREE)
        with herds.of(
            control_plane, muster, "churn", nodes=NODES, devices=DEVICES, quota=QUOTAS[GATED], **RULES
        ) as herd:
            _found_others(herd)
            yield herd


def _queue(control_plane: ControlPlane, name: str, **spec: Any) -> None:
    manifest = {**an_object(names.API_VERSION, "Queue", name), "spec": spec}
    control_plane.client().apply(f"{GROUP}/queues/{name}", manifest)


def _found_others(herd: Herd) -> None:
    """Found the queues beside the team's own, open to the same namespace, and wait until Jobs are held in one."""
    (meter,) = herd.lab.meters
    selector = {"matchLabels": {"kubernetes.io/metadata.name": herd.lab.namespace.name}}
    for name in QUOTAS.keys() - {GATED}:
        quotas = [{"meter": meter, "nominal": str(QUOTAS[name])}]
        more = {"holdAt": "Workload"} if name == WHOLE else {}
        spec = {"namespaceSelector": selector, "quotas": quotas, "unmeteredClasses": "Allow", **RULES, **more}
        _queue(herd.lab.control_plane, name, **spec)
    template = herd.template(**{names.QUEUE: WHOLE})

    def is_held() -> bool:
        try:
            dry = herd.lab.client.create(
                f"{herd.lab.team.jobs}?dryRun=All", an_object("batch/v1", "Job", "dry", template=template)
            )
        except ApiError:
            return False
        return bool(dry["spec"].get("suspend"))

    eventually(is_held, what="Jobs are held")


@pytest.mark.timeout(600 + 2 * SECONDS, func_only=True)
def test_after_an_hour_of_everything_nothing_is_left_and_the_books_are_right(herd: Herd) -> None:
    began = time.monotonic()
    print(f"SEED={SEED} CHURN={SECONDS}")
    churn = Churn(lab=herd.lab, herd=herd, chance=random.Random(SEED), misfortune=min(60.0, 8.0 + SECONDS / 60))  # noqa: S311 - a test's dice
    muster, witness = herd.lab.muster, Witness(herd.lab.client, Hardware.of(herd.lab.driver, herd.lab.hardware))
    try:
        with witness.watching():
            churn.begin()
            began_with = tried(muster)
            churn.run(SECONDS)
            churn.end()
            what = lambda: f"nothing is left (SEED={SEED}): {left(herd)}"  # noqa: E731
            eventually(lambda: emptied(churn), what=what, within=SECONDS_TO_EMPTY)
    finally:
        print(
            f"SEED={SEED} {time.monotonic() - began:.0f} s, {dict(churn.counts)}, {dict(tried(muster))}, {left(herd)}"
        )

    for gang in filter(waits_for_its_pods, herd.gangs):
        herd.lab.client.delete(f"{herd.gangs_path}/{gang['metadata']['name']}")
    eventually(lambda: not herd.gangs, what="what its user deletes is gone")
    eventually(lambda: not charged(herd), what=lambda: f"nothing is charged; {charged(herd)} (SEED={SEED})")
    assert "are right" in muster.ledger("verify")
    assert "say what the cluster shows" in muster.ledger("reconcile", "--grace", "0.5")
    assert not witness.wrong
    assert most_charged(muster) <= sum(QUOTAS.values())
    judge_trials(began_with, tried(muster))
    assert not [line for line in muster.logs.splitlines() if "a status was not written" in line and "(422)" in line]
    assert not muster.defect, muster.defect


def judge_trials(began_with: Counter[str], trials: Counter[str]) -> None:
    """See that gangs were evicted, and workloads held, resumed and suspended again; in a long run again and again."""
    kinds = (PREEMPTED, RECLAIMED, RESUMED, SUSPENDED_AGAIN)
    assert all(began_with[kind] for kind in kinds), began_with
    assert all(trials[kind] - began_with[kind] >= SECONDS // SECONDS_PER_TRIAL for kind in kinds), trials


def tried(muster: Muster) -> Counter[str]:
    """Count gangs that were evicted, and what became of workloads that were held as a whole, by the ledger."""
    found: Counter[str] = Counter()
    resumed: set[str] = set()
    for row in muster.rows("SELECT kind, reason, gang_uid FROM transactions ORDER BY sequence"):
        cause = row["reason"].partition(":")[0]
        if row["kind"] == Kind.ADJUST and row["reason"] == seat_transfer.REASON:
            resumed.add(row["gang_uid"])
            found[RESUMED] += 1
        elif row["kind"] == Kind.EVICT and cause in (PREEMPTED, RECLAIMED):
            found[cause] += 1
            found[SUSPENDED_AGAIN] += row["gang_uid"] in resumed
    return found


def most_charged(muster: Muster) -> int:
    """Return the most that was reserved and used at a time, by the ledger, of what all queues have."""
    question = """SELECT SUM(CAST(amount AS INTEGER)) AS amount FROM postings
        WHERE bucket IN ('reserved', 'used') GROUP BY sequence ORDER BY sequence"""
    return max(accumulate(row["amount"] for row in muster.rows(question)), default=0)


def charged(herd: Herd) -> list[Manifest]:
    """Return what the queues' status tells as reserved or used."""
    queues = [herd.lab.client.get(f"{GROUP}/queues/{name}") for name in QUOTAS]
    uses = [use for queue in queues for use in queue.get("status", {}).get("meters", [])]
    return [use for use in uses if (use["reserved"], use["used"]) != ("0", "0")]


def emptied(churn: Churn) -> bool:
    """Have the others do their part; whether nothing is left."""
    churn.tend()
    return not left(churn.herd)


def left(herd: Herd) -> list[str]:
    """Return what is still there of workloads, and what may keep it: what makes pods, pods, claims and gangs."""
    makers: list[Manifest] = [{"apiVersion": version, "kind": kind} for version, kind in (*KINDS, *herds.MAKERS)]
    space = herd.lab.namespace
    paths = [*(herd.path(one) for one in makers), space.pods, space.claims]
    found = [(path.rpartition("/")[2], one) for path in paths for one in herd.lab.client.items(path)]
    found += [("gangs", gang) for gang in herd.gangs if not waits_for_its_pods(gang)]
    return [f"{kind}/{one['metadata']['name']} ({_kept_by(one)})" for kind, one in found]


def _kept_by(obj: Manifest) -> str:
    """Return what tells why an object is still there: its owners, who has to let it go, and how far it is."""
    meta, status = obj["metadata"], obj.get("status", {})
    owners = [f"{owner['kind']} {owner['name']} {owner['uid']}" for owner in meta.get("ownerReferences", ())]
    told = {
        "uid": meta["uid"],
        "made": meta["creationTimestamp"],
        "owners": ", ".join(owners),
        "deleted": meta.get("deletionTimestamp"),
        "finalizers": ", ".join(meta.get("finalizers", ())),
        "phase": status.get("phase"),
        "node": obj.get("spec", {}).get("nodeName"),
    }
    return "; ".join(f"{key} {value}" for key, value in told.items() if value)


def waits_for_its_pods(gang: Any) -> bool:
    """Whether a gang was evicted whose pods name it themselves: nobody knows whether somebody makes them anew, so its
    place is kept for an hour.
    """
    status = gang.get("status", {})
    return "workload" not in gang["spec"] and status.get("phase") == "Evicted" and "evicted" in status
