"""Claims for devices: a pod's own and shared ones, allocated and not, and what devices take of the node beside them."""

from collections.abc import Sequence

from tests.conformance.filters import node_needs
from tests.conformance.filters.draws import Draw
from tests.conformance.filters.volumes import add
from tests.conformance.filters.world import Json, World, merge

DRIVER, CLASS, SERVED = "gpu.example.com", "gpu", "example.com/served"
GATE = "DRANodeAllocatableResources"


def dynamic_resources(draw: Draw, world: World) -> None:
    """Nodes with few devices, pods that claim them in one way or the other, and devices that take of their nodes."""
    needy = draw.chance(35) and world.since(36)
    if needy:
        world.gates[GATE] = True
        node_needs.add_requests(draw, world)
    chosen: Json = {"metadata": {"name": CLASS}, "spec": {"selectors": [_selector(f'device.driver == "{DRIVER}"')]}}
    if served := draw.chance(40):
        chosen["spec"]["extendedResourceName"] = SERVED
    if draw.chance(97):
        add(world, "deviceClasses", chosen)
    free = {name: _slice(draw, world, name, needy=needy) for name in world.named() if draw.chance(90)}
    for pod in world.bound:
        left = free.get(pod["spec"]["nodeName"])
        if left and draw.chance(50):
            _hold(world, pod, left)
            if needy and draw.chance(60):
                node_needs.add_status(draw, pod, world.version)
    for number, group in enumerate(world.groups):
        _claim_for(draw, world, number, group, free, ways=(served, needy))


def _claim_for(
    draw: Draw, world: World, number: int, group: list[Json], free: dict[str, list[str]], *, ways: tuple[bool, bool]
) -> None:
    """Let the pods of a group claim devices. ways: whether a class serves a resource, and devices take of nodes."""
    served, needy = ways
    users = node_needs.users(draw, group) if needy else [0]
    way = draw.weighted([("own", 50), ("shared", 25), ("elsewhere", 10), ("served" if served else "own", 15)])
    request = _request(draw)
    if needy and draw.chance(20):
        request["exactly"]["capacity"] = {"requests": {node_needs.CAPACITY: draw.pick(("1", "2", "5"))}}
    place = draw.pick(world.named())
    for pod in group:
        if way == "served":
            merge(pod["spec"]["containers"][0], {"resources": {"limits": {SERVED: str(draw.number(1, 2))}}})
            continue
        name = f"{pod['metadata']['name']}-gpu" if way == "own" else f"gpu-{number}"
        claim = _claim(pod, name, request)
        if way == "elsewhere":
            _allocate(claim, place, free.get(place, []))
        _use(pod, name, users)
        add(world, "resourceClaims", claim)


def _selector(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def _slice(draw: Draw, world: World, node: str, *, needy: bool) -> list[str]:
    """Give a node a slice of devices; return their names."""
    devices = [_device(draw, f"d{at}", needy=needy, version=world.version) for at in range(draw.number(1, 4))]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
    add(world, "resourceSlices", {"metadata": {"name": f"slice-{node}"}, "spec": spec})
    return [device["name"] for device in devices]


def _device(draw: Draw, name: str, *, needy: bool, version: str) -> Json:
    device: Json = {"name": name, "attributes": {"model": {"string": draw.pick(("a", "b"))}}}
    if draw.chance(10):
        device["taints"] = [{"key": "broken", "effect": draw.pick(("NoSchedule", "NoExecute"))}]
    if needy and draw.chance(70):
        node_needs.add_needs(draw, device, version)
    return device


def _request(draw: Draw) -> Json:
    exactly: Json = {
        "deviceClassName": CLASS,
        "allocationMode": "ExactCount",
        "count": draw.weighted([(1, 70), (2, 30)]),
    }
    if draw.chance(30):
        model = draw.pick(("a", "b"))
        exactly["selectors"] = [_selector(f'device.attributes["{DRIVER}"].model == "{model}"')]
    if draw.chance(15):
        # By name: what tolerates a wildcard is evicted all the same, so that Muster does not promise it.
        exactly["tolerations"] = [
            {"key": "broken", "operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")
        ]
    return {"name": "gpu", "exactly": exactly}


def _claim(pod: Json, name: str, request: Json) -> Json:
    meta = {"name": name, "namespace": pod["metadata"]["namespace"]}
    return {"metadata": meta, "spec": {"devices": {"requests": [request]}}}


def _use(pod: Json, name: str, users: Sequence[int] = (0,)) -> None:
    """Let a pod use a claim. users: which of its containers name it."""
    merge(pod, {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}})
    for at in users:
        merge(pod["spec"]["containers"][at], {"resources": {"claims": [{"name": "gpu"}]}})


def _hold(world: World, pod: Json, free: list[str]) -> None:
    """Let a pod that runs hold a device of its node."""
    name = f"{pod['metadata']['name']}-gpu"
    claim = _claim(pod, name, {"name": "gpu", "exactly": {"deviceClassName": CLASS}})
    _allocate(claim, pod["spec"]["nodeName"], [free.pop(0)])
    _use(pod, name)
    add(world, "resourceClaims", claim)


def _allocate(claim: Json, node: str, devices: list[str]) -> None:
    """Allocate a claim on a node, a device for its request."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": device} for device in devices[:1]]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    claim["status"] = {"allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}}
