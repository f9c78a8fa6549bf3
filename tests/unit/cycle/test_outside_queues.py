"""A cycle reports the devices that pods in no queue hold."""

from dataclasses import replace

from admission.api.kubernetes.claims import AllocatedDevice, Allocation
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from tests.builders import CLASS, a_cluster, pod_of
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, run


async def test_a_cycle_counts_the_devices_of_a_pod_in_no_queue_and_none_of_a_queues() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4).pod("loose", queue="").pod("queued", queue="q")
    cluster = Cluster(builder)
    for name in ("loose", "queued"):
        given = RequestDevice(request="gpus", device=DeviceId(CLASS, "a", f"gpu-{len(name)}"))
        claim = builder.snapshot().claims[f"team/{name}-gpus"]
        allocation = Allocation(devices=(AllocatedDevice(given=given),))
        held = replace(claim, allocation=allocation, reserved_for=(pod_of(builder.snapshot(), name).meta.uid,))
        cluster._claims[claim.meta.key] = held

    result = await run(a_leader(cluster, Ledger()))

    assert result.outside == {CLASS: 1}
