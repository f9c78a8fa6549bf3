"""The whole life of each kind on a real control plane: held, started whole, scaled, restarted, gone without a trace.

All kinds live at the same time, side by side in one queue. `lives` says how each is made, scaled and restarted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.controlplane import ControlPlane
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, herds, lives
from tests.e2e.herds import Herd
from tests.e2e.lives import KINDS, Life, View
from tests.e2e.musters import Muster

METER = "gpus-lives"

pytestmark = pytest.mark.timeout(400)


CUSTOM = {(kind.version, kind.kind) for kind in KINDS.values() if "." in kind.version}

muster = fixtures.muster(*sorted({*CUSTOM, (lives.RAY, "RayCluster")}))


@pytest.fixture(scope="module")
def herd(control_plane: ControlPlane, muster: Muster) -> Iterator[Herd]:
    with herds.of(control_plane, muster, "lives", nodes=6, devices=16) as herd:
        yield herd


SECONDS_TOGETHER = 150.0
"""All kinds have to come so far, each step of their controllers after the one before."""

MADE_AGAIN = ("jobset", "trainjob", "spark", "lws-0", "lws-1")
"""Of what restarts as another gang, while what makes it stays. The group that was scaled away is not among them."""


@dataclass(frozen=True, slots=True)
class Running:
    """The UIDs of the gangs of a life, and of its pods."""

    gangs: frozenset[str]
    pods: frozenset[str]


def running(life: Life, view: View) -> Running | None:
    """Return what runs, if that is all of a life: each gang where it was planned, charged for these pods and no more.

    A Gang that was before has to be gone.
    """
    pods, gangs = life.seen(view), gangs_of(life, view)
    if len(pods) != life.pods or any(pod["status"].get("phase") != "Running" for pod in pods.values()):
        return None
    groups = life.kind.gangs(pods)
    wanted = [({name: pods[name]["spec"]["nodeName"] for name in group}, {METER: str(len(group))}) for group in groups]
    seen = [
        ({one["pod"]: one["node"] for one in gang["status"].get("plan", ())}, gang["status"].get("charges"))
        for gang in gangs
    ]
    if len(seen) != len(wanted) or any(one not in seen for one in wanted):
        return None
    return Running(frozenset(map(uid, gangs)), frozenset(map(uid, pods.values())))


def gangs_of(life: Life, view: View) -> list[Any]:
    """Return the Gangs of a life, but for those whose pods have been and are gone; these are charged nothing."""
    mine = [gang for gang in view.gangs if gang["metadata"]["name"].startswith(f"{life.name}-") and "status" in gang]
    return [gang for gang in mine if gang["status"]["phase"] != "Finished" or gang["status"].get("charges")]


def finished(herd: Herd, *names: str) -> list[str]:
    """Return the Gangs of some names whose pods have been and are gone."""
    found = [gang["metadata"]["name"] for gang in herd.gangs if gang.get("status", {}).get("phase") == "Finished"]
    return [one for one in found if one.startswith(tuple(f"{name}-" for name in names))]


def uid(obj: Manifest) -> str:
    return str(obj["metadata"]["uid"])


def held(life: Life, view: View) -> bool:
    """Whether all pods that come before others run are there, wait, and are told why."""
    pods, gangs = life.seen(view), gangs_of(life, view)
    told = [gang["status"].get("hold", {}).get("message", "") for gang in gangs]
    early = life.kind.early or life.pods
    return len(pods) == early and gated(pods) and bool(told) and all("is stopped" in one for one in told)


def gated(pods: Mapping[str, Manifest]) -> bool:
    return all(pod["spec"].get("schedulingGates") for pod in pods.values())


def waits_for_others(life: Life, view: View) -> bool:
    """Whether the first pod of what was restarted waits for the others, where there are others."""
    if not life.kind.first:
        return True
    pods, gangs = life.seen(view), gangs_of(life, view)
    told = [gang["status"].get("hold", {}).get("message", "") for gang in gangs]
    return bool(pods) and gated(pods) and any(one.startswith("1 of ") for one in told)


@dataclass(frozen=True, slots=True)
class Company:
    """All lives together, each at the same stage."""

    herd: Herd
    lives: Sequence[Life]

    def await_all(
        self, seen: Callable[[Life, View], Any], *, what: str, first: Callable[[Life], int] = lambda _life: 0
    ) -> dict[str, Any]:
        """Let all controllers work until this is seen of every life, and return what is seen.

        first: with how many objects each of them gets no further; 0 for all.
        """
        found: dict[str, Any] = {}

        def done() -> bool:
            view = View.of(self.herd)
            found.update({life.name: seen(life, view) for life in self.lives})
            for life in self.lives:
                life.reconcile(view, first(life))
            return all(found.values())

        def missing() -> str:
            return f"{what}: not of {[name for name, one in found.items() if not one]}; {self.herd.standing()}"

        eventually(done, what=missing, within=SECONDS_TOGETHER)
        return found

    def wait_running(self, *, other_than: Mapping[str, Running] | None = None) -> dict[str, "Running"]:
        """Wait until all pods of all lives run, and nothing else is charged. other_than: pods that are to be gone."""
        old = other_than or {}

        def runs(life: Life, view: View) -> Running | None:
            found = running(life, view)
            return found if found and not (life.name in old and found.pods & old[life.name].pods) else None

        found = self.await_all(runs, what="all pods run, each gang as it was planned")
        self.herd.lab.wait_used(gpus=(0, sum(life.pods for life in self.lives)))
        return found

    def reserved(self) -> dict[str, int]:
        """Return how often the gangs of each life were given places, as the ledger has it."""
        return {life.name: len(self.herd.lab.entries(life.name, "reserve")) for life in self.lives}

    def see_started_whole(self, found: Mapping[str, Running], since: Mapping[str, int] | None = None) -> None:
        """See that each gang was given all of its places at once, but for executors of Spark, which come one by one."""
        for name, count in self.reserved().items():
            times, gangs = count - (since or {}).get(name, 0), len(found[name].gangs)
            assert times >= gangs if name == "spark" else times == gangs, name

    def scale(self, replicas: int) -> dict[str, Running]:
        for life in self.lives:
            if not life.kind.fixed:
                life.scale(replicas)
        return self.wait_running()

    def restart(self, old: Mapping[str, Running]) -> dict[str, Running]:
        """Restart all; those that make pods which wait for others make one of these first, and then the rest."""
        for life in self.lives:
            life.kind.restart(life)

        def gone(life: Life, view: View) -> bool:
            return old[life.name].pods.isdisjoint(map(uid, life.seen(view).values()))

        self.await_all(gone, what="the old pods are gone", first=lambda life: 0 if life.kind.again else life.kind.first)
        for life in self.lives:
            if life.kind.again:
                life.kind.again(life)
        self.await_all(waits_for_others, what="new pods wait for the others", first=lambda life: life.kind.first)
        return self.wait_running(other_than=old)

    def end(self) -> None:
        """Delete all objects, and what their controllers have made, as the garbage collector does a little later."""
        self.herd.delete(*(life.object for life in self.lives))
        view = View.of(self.herd)
        for life in self.lives:
            life.remove(view, life.made)
        self.herd.clear()


def test_every_kind_is_held_starts_whole_is_scaled_and_restarted_and_leaves_nothing(herd: Herd) -> None:
    company = Company(herd, [Life(name=name, kind=kind, herd=herd) for name, kind in KINDS.items()])
    herd.lab.stop_queue("Hold")
    for life in company.lives:
        life.submit()
    company.await_all(held, what="all pods wait")
    herd.lab.stop_queue("None")
    started = company.wait_running()
    company.see_started_whole(started)

    grown = company.scale(3)
    for name, before in started.items():
        assert before.pods <= grown[name].pods, name
        assert before.gangs <= grown[name].gangs, name
    shrunk = company.scale(2)
    for name, after in shrunk.items():
        assert after.pods <= grown[name].pods, name
        assert after.gangs <= grown[name].gangs, name

    reserved = company.reserved()
    again = company.restart(shrunk)
    company.see_started_whole(again, since=reserved)
    for name, kind in KINDS.items():
        assert (again[name].gangs == shrunk[name].gangs) is kind.keeps, name

    eventually(lambda: not finished(herd, *MADE_AGAIN), what="nothing is said of the gangs that were before")
    company.end()
    eventually(lambda: not herd.gangs, what="no Gang is left")
    assert herd.lab.muster.wrong_books() is None
