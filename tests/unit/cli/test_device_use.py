"""`muster why` of a pod outside queues names the metered devices that it takes."""

import asyncio
from typing import Any

import pytest

from admission.api.kubernetes import pods
from admission.api.kubernetes.pods import Pod
from admission.api.values.decoding import Json
from admission.cli.cluster_options import Cluster
from admission.cli.why import command, device_use
from admission.cli.why.gang_lookup import PodGang
from admission.errors import ForbiddenError, GoneError

GPU = "gpu.example.com"
REQUEST = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": GPU, "count": 1}}]}}
METER: Json = {"metadata": {"name": "gpus"}, "spec": {"sources": [{"deviceClasses": [GPU], "count": {}}]}}
RESOURCE = "/apis/resource.k8s.io/v1/namespaces/ml"
OBJECTS: dict[str, Json] = {
    f"{RESOURCE}/resourceclaimtemplates/one": {
        "metadata": {"name": "one", "namespace": "ml"},
        "spec": {"spec": REQUEST},
    },
    f"{RESOURCE}/resourceclaims/own": {"metadata": {"name": "own", "namespace": "ml"}, "spec": REQUEST},
}


class FakeConnection:
    """The API server, which may refuse to list meters."""

    server = "https://cluster"

    def __init__(self, *, may_list: bool = True) -> None:
        self._may_list = may_list

    async def pages(self, _path: str, **_: object) -> Any:
        if not self._may_list:
            raise ForbiddenError("you may not list meters")
        yield {"items": [METER]}

    async def get(self, path: str) -> Json:
        if path not in OBJECTS:
            raise GoneError(path)
        return OBJECTS[path]


def a_pod(*claims: dict[str, str]) -> Pod:
    spec = {
        "containers": [{"name": "main"}],
        "resourceClaims": [{"name": f"c{at}", **one} for at, one in enumerate(claims)],
    }
    return pods.decode({"metadata": {"name": "p", "namespace": "ml", "uid": "p"}, "spec": spec})


TEMPLATE, CLAIM, GONE = (
    {"resourceClaimTemplateName": "one"},
    {"resourceClaimName": "own"},
    {"resourceClaimName": "gone"},
)

TAKES = {
    "by a template": (a_pod(TEMPLATE), True, [GPU]),
    "by a claim, beside one that is gone": (a_pod(GONE, CLAIM), True, [GPU]),
    "nothing": (a_pod(), True, []),
    "nobody may say": (a_pod(CLAIM), False, []),
}


@pytest.mark.parametrize(("pod", "may_list", "classes"), TAKES.values(), ids=TAKES)
def test_why_knows_which_metered_devices_a_pod_takes(pod: Pod, may_list: bool, classes: list[str]) -> None:
    cluster = Cluster(FakeConnection(may_list=may_list))  # type: ignore[arg-type]

    assert asyncio.run(device_use.metered(pod, cluster)) == classes


def test_why_says_that_they_are_on_nobodys_quota() -> None:
    found = PodGang(a_pod(CLAIM), "", frozenset())

    text = command.outside(found, [GPU])

    assert text.startswith(
        "pod ml/p is in no queue: Muster does not hold it; the pod enters no queue and takes devices"
    )
    assert f"({GPU}): they are on nobody's quota" in text
