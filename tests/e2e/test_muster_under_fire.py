"""Random gangs on a real control plane whose Muster and API server are killed, and whose devices others want as well.

`GANGS=200 pytest tests/e2e/test_muster_under_fire.py` runs longer; `SEED` repeats what a failure names.
"""

import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, workloads
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.labs import Lab, plain, results_of
from tests.e2e.musters import Muster

GANGS = int(os.environ.get("GANGS", "12"))
SEED = int(os.environ.get("SEED", str(secrets.randbelow(10**6))))
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
SECONDS_BETWEEN_DEATHS = 8.0
SECONDS_TO_END = 60 + 6 * GANGS

MEANS: dict[str, tuple[str, dict[str, Any]]] = {
    "behind a fence": ("afire.test", {"fence": ["afire.test"]}),
    "pinned": ("pinned.test", {}),
}


@dataclass(slots=True)
class Guard:
    """Looks at all claims, again and again, in a thread of its own. twice: devices that two claims had at a time."""

    client: Client
    twice: set[str] = field(default_factory=set)
    looks: int = 0

    def look(self) -> None:
        taken = Counter(
            f"{one['driver']}/{one['pool']}/{one['device']}"
            for claim in self.client.items(CLAIMS)
            for one in results_of(claim)
        )
        self.twice |= {device for device, times in taken.items() if times > 1}
        self.looks += 1

    @contextmanager
    def watching(self) -> Iterator[None]:
        done = Event()

        def watch() -> None:
            while not done.wait(0.2):
                try:
                    self.look()
                except (ApiError, OSError):
                    continue  # the API server is dead for a moment

        thread = Thread(target=watch, name="guard")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@pytest.fixture(params=[*MEANS.values()], ids=[*MEANS])
def lab(request: pytest.FixtureRequest, control_plane: ControlPlane, namespace: Namespace) -> Iterator[Lab]:
    driver, settings = request.param
    muster = Muster(control_plane, **settings).start()
    lab = Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=driver)
    yield lab
    muster.end()
    muster.configure()
    muster.start()
    eventually(lambda: driver not in control_plane.kubectl("get", "devicetaintrules"), what="the fence is gone")
    lab.clear()
    muster.clean()


def outsider(name: str, driver: str) -> Manifest:
    """A pod that no queue knows, which runs for a moment."""
    return workloads.pod(name, template=f"one-{driver}", annotations={workloads.RUNTIME: "2s"})


@pytest.mark.timeout(SECONDS_TO_END + 400, func_only=True)
def test_whoever_dies_every_gang_runs_whole_and_the_books_are_right(lab: Lab) -> None:
    chance = random.Random(SEED)  # noqa: S311 - a test's dice
    print(f"SEED={SEED} GANGS={GANGS}")
    for number in range(4):
        lab.node(f"n{number}", plain(4))
    lab.device_class()
    lab.meter("gpus", count={})
    lab.found({lab.meters[0]: "12"}, startTimeout="20s", requeue={"base": "1s", "max": "4s"})
    others = Namespace(name="default", client=lab.client)
    request = {"name": "gpu", "exactly": {"deviceClassName": lab.driver, "count": 1}}
    others.create(workloads.claim_template(f"one-{lab.driver}", request))

    guard = Guard(lab.client)
    with guard.watching():
        gangs = submit_under_fire(lab, others, chance)
        eventually(
            lambda: all(is_complete(lab, name) for name in gangs),
            what=f"every gang has run whole (SEED={SEED}); {[name for name in gangs if not is_complete(lab, name)]}",
            within=SECONDS_TO_END,
        )
        lab.wait_used(gpus=(0, 0))

    lab.client.delete(f"{others.pods}?gracePeriodSeconds=0&labelSelector=outside")
    lab.client.delete(f"{others.templates}/one-{lab.driver}")
    assert not guard.twice, f"devices that two claims had at a time (SEED={SEED})"
    assert guard.looks > 10
    assert "are right" in lab.muster.ledger("verify")
    assert "say what the cluster shows" in lab.muster.ledger("reconcile", "--grace", "0.5")
    assert "Traceback" not in lab.muster.log


def submit_under_fire(lab: Lab, others: Namespace, chance: random.Random) -> dict[str, int]:
    """Submit gangs, one every moment, while Muster and the API server die. Return how many pods each has."""
    gangs: dict[str, int] = {}
    deadly = time.monotonic() + SECONDS_BETWEEN_DEATHS
    kills_apiserver = GANGS // 2
    for number in range(GANGS):
        name, pods, gpus = f"gang-{number}", chance.randint(1, 4), chance.randint(1, 2)
        request = {"name": "gpu", "exactly": {"deviceClassName": lab.driver, "count": gpus}}
        lab.submit(name, pods=pods, request=request, annotations={workloads.RUNTIME: f"{chance.randint(1, 4)}s"})
        gangs[name] = pods
        if chance.random() < 0.3:
            pod = outsider(f"outside-{lab.driver.partition('.')[0]}-{number}", lab.driver)
            pod["metadata"]["labels"]["outside"] = "true"
            others.create(pod)
        time.sleep(chance.random())
        if number == kills_apiserver:
            lab.control_plane.restart_apiserver(hard=True)
        if time.monotonic() > deadly:
            lab.muster.end(hard=True)
            lab.muster.start()
            deadly = time.monotonic() + SECONDS_BETWEEN_DEATHS * chance.random()
    return gangs


def is_complete(lab: Lab, name: str) -> bool:
    """Whether a Job has run all of its pods; an API server that is away has not said so."""
    try:
        job = lab.client.get(f"{lab.team.jobs}/{name}")
    except (ApiError, OSError):
        return False
    return bool(job["status"].get("succeeded", 0) == job["spec"]["completions"])
