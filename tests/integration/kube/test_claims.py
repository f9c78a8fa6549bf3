"""Claims are allocated and taken back in writes that fail when the claim is not what was seen."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import Claim
from admission.api.values import names
from admission.errors import ConflictError, FixError, GoneError
from admission.kube.client.connection import Connection
from admission.kube.writers.claims import ClaimWriter
from tests.integration.kube.fake_api import FakeApi, status

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
PATH = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/gpu"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def a_claim(**more: Any) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.test"}}
    return {
        "metadata": {"name": "gpu", "namespace": "team", "uid": "claim-1"},
        "spec": {"devices": {"requests": [request]}},
        **more,
    }


def devices(*names: str) -> dict[str, Any]:
    """status.allocation of these devices."""
    results = [{"request": "gpu", "driver": "gpu.test", "pool": "n1", "device": name} for name in names]
    return {"allocationTimestamp": "2026-11-21T12:00:00Z", "devices": {"results": results}}


@pytest.fixture
def seconds() -> Iterator[int]:
    return count()


@pytest.fixture
def writer(connection: Connection, seconds: Iterator[int]) -> ClaimWriter:
    return ClaimWriter(connection, clock=lambda: NOON + timedelta(seconds=next(seconds)))


def put(api: FakeApi, **more: Any) -> Claim:
    """Store a claim and return it as it is seen."""
    return claims.decode(api.put(CLAIMS, a_claim(**more)))


def stored(api: FakeApi) -> dict[str, Any]:
    return api.objects[CLAIMS]["team/gpu"]


async def test_the_finalizer_comes_before_the_allocation(api: FakeApi, writer: ClaimWriter) -> None:
    seen = put(api)

    written = await writer.allocate(seen, devices("gpu-0"))

    first, second = (asked for asked in api.asked if asked.method == "PATCH")
    assert (first.path, second.path) == (PATH, f"{PATH}/status")
    assert first.body["metadata"] == {
        "uid": "claim-1",
        "resourceVersion": seen.meta.resource_version,
        "annotations": {names.PLACEMENT: "allocated 2026-11-21T12:00:00.000000+00:00"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    assert second.body["status"] == {"allocation": devices("gpu-0")}
    assert second.body["metadata"]["resourceVersion"] not in ("", seen.meta.resource_version)
    assert written == claims.decode(stored(api))
    assert written.allocation == claims.decode_allocation(devices("gpu-0"))


async def test_a_claim_that_has_changed_since_is_left_alone(api: FakeApi, writer: ClaimWriter) -> None:
    seen = put(api)
    put(api, status={"allocation": devices("gpu-1")})

    with pytest.raises(ConflictError):
        await writer.allocate(seen, devices("gpu-0"))

    assert stored(api)["status"]["allocation"] == devices("gpu-1")


async def test_a_claim_that_changes_between_the_two_writes_is_left_unallocated(
    api: FakeApi, writer: ClaimWriter
) -> None:
    seen = put(api)
    api.answer("PATCH", f"{PATH}/status", 409, status(409, "Conflict", "modified"))

    with pytest.raises(ConflictError):
        await writer.allocate(seen, devices("gpu-0"))

    assert "status" not in stored(api)


async def test_repeating_an_allocation_write_changes_nothing(api: FakeApi, writer: ClaimWriter) -> None:
    """Its answer was lost, or the view does not show it yet."""
    seen = put(api)
    first = await writer.allocate(seen, devices("gpu-0"))

    again = await writer.allocate(seen, devices("gpu-0"))

    assert again == first


async def test_a_claim_recreated_under_the_name_is_not_allocated(api: FakeApi, writer: ClaimWriter) -> None:
    seen = put(api)
    api.delete(CLAIMS, "team/gpu")
    other = a_claim()
    other["metadata"]["uid"] = "claim-2"
    api.put(CLAIMS, other)

    with pytest.raises(GoneError):
        await writer.allocate(seen, devices("gpu-0"))

    assert "status" not in stored(api)


async def test_an_allocation_that_the_api_server_finds_invalid_is_a_fix_error(
    api: FakeApi, writer: ClaimWriter
) -> None:
    seen = put(api)
    api.answer("PATCH", f"{PATH}/status", 422, status(422, "Invalid", "status.allocation: whatever"))

    with pytest.raises(FixError, match="whatever"):
        await writer.allocate(seen, devices("gpu-0"))


async def test_an_allocated_claim_is_deallocated(api: FakeApi, writer: ClaimWriter) -> None:
    seen = put(api, status={"allocation": devices("gpu-0")})

    left = await writer.deallocate(seen)

    assert left is not None
    assert left.allocation is None
    assert not stored(api)["status"].get("allocation")


async def test_a_claim_that_pods_have_reserved_is_not_deallocated(api: FakeApi, writer: ClaimWriter) -> None:
    seen = put(api, status={"allocation": devices("gpu-0")})
    put(api, status={"allocation": devices("gpu-0"), "reservedFor": [{"resource": "pods", "name": "a", "uid": "p"}]})

    left = await writer.deallocate(seen)

    assert left is not None
    assert left.reserved_for == ("p",)
    assert api.count("PATCH", f"{PATH}/status") == 0


async def test_a_deallocation_makes_every_earlier_write_fail(api: FakeApi, writer: ClaimWriter) -> None:
    """Of a leader that was deposed while it wrote, or of a request whose answer never came."""
    seen = put(api)

    await writer.deallocate(seen)
    with pytest.raises(ConflictError):
        await writer.allocate(seen, devices("gpu-0"))
    between = claims.decode(stored(api))
    await writer.deallocate(between)
    with pytest.raises(ConflictError):
        await writer.allocate(between, devices("gpu-0"))

    assert "status" not in stored(api)


async def test_a_deleted_claim_needs_no_deallocation(api: FakeApi, writer: ClaimWriter) -> None:
    seen = put(api)
    api.delete(CLAIMS, "team/gpu")

    assert await writer.deallocate(seen) is None


async def test_a_claim_that_changes_during_its_deallocation_is_read_again(api: FakeApi, writer: ClaimWriter) -> None:
    seen = put(api, status={"allocation": devices("gpu-0")})
    api.answer("PATCH", f"{PATH}/status", 409, status(409, "Conflict", "modified"))

    left = await writer.deallocate(seen)

    assert left is not None
    assert left.allocation is None
    assert api.count("GET", PATH) == 2


async def test_a_claim_with_conflicts_without_end_is_for_the_next_cycle(api: FakeApi, writer: ClaimWriter) -> None:
    seen = put(api, status={"allocation": devices("gpu-0")})
    for _ in range(4):
        api.answer("PATCH", f"{PATH}/status", 409, status(409, "Conflict", "modified"))

    with pytest.raises(ConflictError):
        await writer.deallocate(seen)
