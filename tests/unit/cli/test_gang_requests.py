"""`muster gang evict`, `requeue` and `prioritize`: what is written, what is printed, and what is refused before."""

import asyncio
import re
from typing import Any, cast

import pytest

from admission.api.muster.gang_requests import Action
from admission.api.values.decoding import Json
from admission.cli.cluster_options import Cluster
from admission.cli.gang import requests
from admission.cli.gang.requests import Asked
from admission.errors import ClusterUnavailableError, FixError, GoneError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind

CLASSES = [{"name": "low", "value": 1}, {"name": "urgent", "value": 100}]


def a_gang(name: str, phase: str, workload: str) -> Json:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": workload, "uid": f"uid-{workload}"}
    return {
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"},
        "spec": {"queue": "q", "size": 1, "workload": owner, "request": {"id": "1", "action": "Requeue", "by": "bob"}},
        "status": {"phase": phase},
    }


class Served:
    """Two gangs and their queue, with a controller that answers at once, if it runs, or somebody who deletes gangs."""

    def __init__(self, outcome: str = "", *, deletes: bool = False) -> None:
        self.connection = self
        self.gangs = {
            one["metadata"]["name"]: one for one in (a_gang("r", "Running", "runs"), a_gang("w", "Pending", "waits"))
        }
        self.outcome, self.deletes = outcome, deletes
        self.patched: list[tuple[str, Any]] = []

    async def list_objects(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Json]:
        assert (kind, labels) == (watched_resources.GANGS, "")
        return [*self.gangs.values()] if namespace == "a" else []

    async def get_object(self, kind: Kind, name: str, namespace: str = "") -> Json | None:
        if kind == watched_resources.QUEUES:
            return {"metadata": {"name": name}, "spec": {"priorityClasses": CLASSES}}
        assert namespace == "a"
        return self.gangs.get(name)

    async def who_am_i(self) -> str:
        return "ann"

    async def patch(self, path: str, body: Any, kind: str) -> Json:
        assert kind == "application/merge-patch+json"
        self.patched.append((path, body))
        if self.deletes:
            raise GoneError(path)
        name, request = path.rpartition("/")[2], body["spec"]["request"]
        if self.outcome:
            answered = {key: value for key, value in request.items() if value is not None}
            self.gangs[name]["status"]["request"] = {**answered, "outcome": self.outcome, "at": "2026-11-21T12:00:00Z"}
        return {}


def ask(cluster: Served, action: Action, name: str, *, reason: str = "", priority_class: str = "") -> bool:
    asked = Asked(action=action, namespace="a", name=name, reason=reason, priority_class=priority_class)
    return asyncio.run(requests.ask(cast("Cluster", cluster), asked))


@pytest.mark.parametrize(
    ("name", "gang", "action", "words"),
    [
        ("runs", "r", Action.EVICT, {"reason": "it is wrong", "priority_class": ""}),
        ("w", "w", Action.REQUEUE, {"reason": "", "priority_class": ""}),
        ("waits", "w", Action.PRIORITIZE, {"reason": "", "priority_class": "urgent"}),
    ],
)
def test_a_request_is_written_under_the_name_of_its_user_and_its_answer_is_printed(
    name: str, gang: str, action: Action, words: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Served("it is done")

    assert ask(cluster, action, name, **words)

    [(path, body)] = cluster.patched
    request = body["spec"]["request"]
    assert path == f"/apis/muster.dev/v1alpha1/namespaces/a/gangs/{gang}"
    assert re.fullmatch(r"[0-9a-f]{32}", request.pop("id"))
    assert request == {
        "action": action,
        "by": "ann",
        "reason": words["reason"] or None,
        "priorityClass": words["priority_class"] or None,
    }
    assert capsys.readouterr().out == f"gang a/{gang}: it is done\n"


def test_an_answer_that_nothing_is_done_is_told_from_one_that_something_is() -> None:
    assert not ask(Served("nothing is done: it does not wait"), Action.REQUEUE, "waits")


REFUSED = {
    "no such gang": (
        (Action.EVICT, "run", ""),
        "there is no gang or workload of a gang run in namespace a; there are: runs, waits",
    ),
    "a gang that waits": (
        (Action.EVICT, "waits", ""),
        "gang a/w is Pending: it holds nothing that could be taken back",
    ),
    "a gang that runs": ((Action.REQUEUE, "runs", ""), "gang a/r is Running: it does not wait"),
    "the priority of a gang that runs": (
        (Action.PRIORITIZE, "runs", "urgent"),
        "gang a/r is Running: only the priority of a gang that waits can be changed",
    ),
    "no such class": (
        (Action.PRIORITIZE, "waits", "urgnt"),
        "queue q has no priority class urgnt; it has: urgent, low",
    ),
}


@pytest.mark.parametrize(("asked", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_refused_before_it_is_asked(asked: tuple[Action, str, str], message: str) -> None:
    cluster, (action, name, priority_class) = Served(), asked

    with pytest.raises(FixError) as refused:
        ask(cluster, action, name, priority_class=priority_class)

    assert str(refused.value) == message
    assert not cluster.patched


def test_without_a_controller_the_request_stays_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "ANSWER_SECONDS", 0.0)

    with pytest.raises(ClusterUnavailableError, match="is written into gang a/w, and no controller has answered it"):
        ask(Served(), Action.REQUEUE, "waits")


def test_a_gang_that_is_deleted_meanwhile_is_said() -> None:
    with pytest.raises(FixError, match="gang a/r was deleted meanwhile"):
        ask(Served(deletes=True), Action.EVICT, "runs")
