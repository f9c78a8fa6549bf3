"""status.allocation as each release of kube-scheduler writes it: which configuration it lists, for which requests."""

from typing import Any

import pytest

from admission.api.kubernetes import claims
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.values.names import NodeName
from admission.dra import compatibility
from admission.dra.allocator import prescribed
from admission.dra.allocator.allocation import AllocationResult
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import DRIVER, a_cluster, a_request

OPAQUE = {"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}


def config(release: Release, *entries: str) -> list[Any]:
    """For which requests the allocation of a claim with requests r and s lists configurations for some of them each."""
    written = [{"requests": list(requests), **OPAQUE} if requests else OPAQUE for requests in entries]
    spec = {"devices": {"requests": [a_request("r"), a_request("s")], "config": written}}
    claim = claims.decode({"metadata": {"name": "c", "namespace": "team", "uid": "c"}, "spec": spec})
    builder = a_cluster().node("a", gpus=2)
    cluster = cluster_state.build(builder.snapshot(), (), profile=compatibility.profile(release))
    given = [RequestDevice(request=one, device=DeviceId(DRIVER, "a", f"gpu-{at}")) for at, one in enumerate("rs")]
    found = prescribed.prescribed_allocation(claim, given, NodeName("a"), cluster, selectors=Selectors())
    assert isinstance(found, AllocationResult)
    return [one.get("requests") for one in found.config]


@pytest.mark.parametrize("release", Release)
def test_a_configuration_for_one_request_is_listed_once(release: Release) -> None:
    assert config(release, "r") == [["r"]]


@pytest.mark.parametrize("release", Release)
def test_a_configuration_for_no_request_by_name_is_listed_without_names(release: Release) -> None:
    assert config(release, "") == [None]


@pytest.mark.parametrize("release", Release)
def test_a_configuration_after_one_without_names_is_listed_too(release: Release) -> None:
    assert config(release, "", "s") == [None, ["s"]]


def test_a_configuration_for_all_requests_is_repeated_by_1_36_and_loses_their_names_in_1_37() -> None:
    assert config(Release.V1_36, "rs") == [["r", "s"], ["r", "s"]]
    assert config(Release.V1_37, "rs") == [None]
