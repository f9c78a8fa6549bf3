"""The templates of ClaimPolicies: what is written, in which order, and what becomes of what is refused."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from admission.api.values import names
from admission.claimpolicy.conversion_recipe import Recipe
from admission.errors import RetryError
from admission.kube.cache import watched_resources
from admission.kube.cache.store import Store
from admission.kube.cache.watched_resources import Kind
from admission.kube.client.connection import Connection
from admission.kube.writers.claim_templates import AGAIN_SECONDS, IDLE_SECONDS, TemplateReconciler
from tests.integration.kube.fake_api import FakeApi, status

TEMPLATES = watched_resources.TEMPLATES.path
IN_ML = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaimtemplates"
GPU = "nvidia.com/gpu"
CONVERTS = {"conversions": [{"extendedResource": GPU, "deviceClassName": "gpu"}]}


def a_spec(count: int = 8) -> dict[str, Any]:
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}]}}


def provides(*templates: str, count: int = 8) -> dict[str, Any]:
    return {"templates": [{"name": name, "spec": a_spec(count)} for name in templates]}


class Cluster:
    """A keeper beside a fake API server, and the time that it goes by."""

    def __init__(self, api: FakeApi, connection: Connection) -> None:
        self.api = api
        self.now = 1000.0
        self.store = Store(
            (
                watched_resources.POLICIES,
                watched_resources.NAMESPACES,
                watched_resources.QUEUES,
                watched_resources.TEMPLATES,
                watched_resources.PODS,
            )
        )
        self.reconciler = TemplateReconciler(connection, self.store, exempt=["kube-system"], clock=lambda: self.now)
        self._versions: Iterator[int] = iter(range(1, 10_000))
        for kind in self.store.tables:
            self.store.tables[kind].keep_only(set())
        for namespace in ("ml", "kube-system"):
            self.put(watched_resources.NAMESPACES, {"metadata": {"name": namespace, "uid": namespace}})

    def put(self, kind: Kind, obj: dict[str, Any]) -> None:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self.store.tables[kind].put(obj)

    def policy(self, spec: dict[str, Any]) -> None:
        self.put(watched_resources.POLICIES, {"metadata": {"name": "p", "uid": "uid-p"}, "spec": spec})

    async def keep(self) -> None:
        """Have it done what is to be done, and seen."""
        await self.reconciler.keep()
        table = self.store.tables[watched_resources.TEMPLATES]
        table.keep_only({table.put(obj) for obj in self.api.objects[TEMPLATES].values()})

    @property
    def counts(self) -> dict[str, int]:
        """What the templates ask for, by their names."""
        return {
            key: obj["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"]
            for key, obj in self.api.objects[TEMPLATES].items()
        }


@pytest.fixture
def cluster(api: FakeApi, connection: Connection) -> Cluster:
    return Cluster(api, connection)


async def test_templates_are_made_kept_and_removed(cluster: Cluster, api: FakeApi) -> None:
    cluster.policy(provides("one", "two"))
    await cluster.keep()
    assert cluster.counts == {"ml/one": 8, "ml/two": 8}
    made = api.last("POST", IN_ML).body["metadata"]
    assert made["labels"][names.POLICY] == "p"
    assert made["ownerReferences"] == [
        {"apiVersion": "muster.dev/v1alpha1", "kind": "ClaimPolicy", "name": "p", "uid": "uid-p"}
    ]

    asked = len(api.asked)
    await cluster.keep()
    assert len(api.asked) == asked, "nothing is written that is so already"

    cluster.policy(provides("one", count=4))
    await cluster.keep()
    assert cluster.counts == {"ml/one": 4}

    cluster.policy({})
    await cluster.keep()
    assert cluster.counts == {}


async def test_a_claim_template_is_dry_run_before_the_outdated_template_is_deleted(
    cluster: Cluster, api: FakeApi
) -> None:
    cluster.policy(provides("one"))
    await cluster.keep()
    cluster.policy(provides("one", count=4))
    api.answer("POST", IN_ML, 422, status(422, "Invalid", "count: must not be 4"))

    await cluster.keep()

    assert cluster.counts == {"ml/one": 8}
    assert api.last("POST", IN_ML).query["dryRun"] == "All"
    (said,) = cluster.reconciler.troubles()["p"]
    assert said.startswith("in namespace ml, template one is not written: ")
    assert "count: must not be 4" in said


async def test_a_refused_claim_template_is_tried_again_after_a_while(cluster: Cluster, api: FakeApi) -> None:
    cluster.policy(provides("one"))
    api.answer("POST", IN_ML, 422, status(422, "Invalid", "not now"))
    await cluster.keep()
    await cluster.keep()
    assert (cluster.counts, api.count("POST", IN_ML)) == ({}, 1)
    assert "p" in cluster.reconciler.troubles()

    cluster.now += AGAIN_SECONDS
    await cluster.keep()
    assert cluster.counts == {"ml/one": 8}
    await cluster.keep()
    assert cluster.reconciler.troubles() == {}


async def test_a_template_that_may_not_be_deleted_stays_and_is_tried_again_after_a_while(
    cluster: Cluster, api: FakeApi
) -> None:
    cluster.policy(provides("one", "two"))
    await cluster.keep()
    cluster.policy(provides("two"))
    one = f"{IN_ML}/one"
    api.answer("DELETE", one, 403, status(403, "Forbidden", "somebody else's policy"))
    await cluster.keep()
    await cluster.keep()
    assert (cluster.counts, api.count("DELETE", one)) == ({"ml/one": 8, "ml/two": 8}, 1)

    cluster.now += AGAIN_SECONDS
    await cluster.keep()
    assert cluster.counts == {"ml/two": 8}


async def test_another_template_of_the_name_is_never_deleted(cluster: Cluster, api: FakeApi) -> None:
    """Neither one that was seen, nor one that took its place a moment ago."""
    cluster.policy(provides("one"))
    await cluster.keep()
    api.delete(TEMPLATES, "ml/one")
    api.put(TEMPLATES, {"metadata": {"name": "one", "namespace": "ml"}, "spec": {"spec": a_spec(1)}})

    cluster.policy(provides("one", count=4))
    await cluster.keep()
    assert cluster.counts == {"ml/one": 1}
    await cluster.keep()
    assert cluster.counts == {"ml/one": 1}
    (said,) = cluster.reconciler.troubles()["p"]
    assert "is somebody else's and stays" in said


async def test_templates_of_converted_pods_stay_for_a_while(cluster: Cluster) -> None:
    cluster.policy(CONVERTS)
    recipe = Recipe(policy="p", resource=GPU, counts=(2,))
    pod: dict[str, Any] = {
        "metadata": {"name": "x", "namespace": "ml", "uid": "x", "annotations": {names.CONVERTED: str(recipe)}},
        "spec": {"containers": [], "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "other"}]},
    }
    cluster.put(watched_resources.PODS, pod)
    await cluster.keep()
    assert cluster.counts == {}, "the pod refers to another template"

    (claim,) = pod["spec"]["resourceClaims"]
    claim["resourceClaimTemplateName"] = recipe.template
    cluster.put(watched_resources.PODS, pod)
    await cluster.keep()
    assert list(cluster.counts.values()) == [2]

    cluster.store.tables[watched_resources.PODS].drop(pod)
    await cluster.keep()
    cluster.now += IDLE_SECONDS - 1
    await cluster.keep()
    assert list(cluster.counts.values()) == [2]
    cluster.now += 1
    await cluster.keep()
    assert cluster.counts == {}


async def test_an_api_server_that_is_busy_is_asked_again(cluster: Cluster, api: FakeApi) -> None:
    cluster.policy(provides("one", "two"))
    for _ in range(6):
        api.answer("POST", IN_ML, 503, status(503, "ServiceUnavailable", "busy"))

    with pytest.raises(RetryError):
        await cluster.keep()

    await cluster.keep()
    assert cluster.counts == {"ml/one": 8, "ml/two": 8}


async def test_a_new_namespace_has_its_templates_at_once(cluster: Cluster, api: FakeApi) -> None:
    cluster.policy(provides("one"))
    woken = asyncio.Event()
    path = "/apis/resource.k8s.io/v1/namespaces/new/resourceclaimtemplates"
    api.answer("POST", path, 422, status(422, "Invalid", "not now"))
    running = asyncio.create_task(cluster.reconciler.run(wake=woken.set))
    try:
        while api.count("POST", IN_ML) == 0:
            await api.next_request()
        cluster.put(watched_resources.NAMESPACES, {"metadata": {"name": "new", "uid": "new"}})
        await woken.wait()
    finally:
        running.cancel()
    assert api.count("POST", path) == 1
    assert "p" in cluster.reconciler.troubles()
