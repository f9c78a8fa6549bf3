"""What devices take of their nodes beside what pods request, and pods whose own resources are near what nodes have."""

from tests.conformance.filters.draws import Draw
from tests.conformance.filters.world import Json, World, merge

CAPACITY = "units"
"""A capacity of devices that several claims share."""

AMOUNTS = {
    "memory": ("8Gi", "20Gi", "40Gi"),
    "cpu": ("500m", "1500u", "3", "9"),
    "hugepages-2Mi": ("4Mi", "32Mi"),
}


def add_needs(draw: Draw, device: Json, version: str) -> None:
    """Let a device take of one or two resources of its node, in the form of the release."""
    shared = draw.chance(30)
    if shared:
        device |= {"allowMultipleAllocations": True, "capacity": {CAPACITY: {"value": "6"}}}
    found = {}
    for name in draw.some(tuple(AMOUNTS), least=1, most=2):
        if version == "1.36":
            found[name] = _old(draw, name, shared=shared)
        else:
            found[name] = _new(draw, name, shared=shared)
    device["nodeAllocatableResourceMappings" if version == "1.36" else "nodeAllocatableResources"] = found


def _old(draw: Draw, name: str, *, shared: bool) -> Json:
    if not shared or draw.chance(30):
        return {"allocationMultiplier": draw.pick(AMOUNTS[name])}
    times = {"allocationMultiplier": draw.pick(AMOUNTS[name])} if draw.chance(80) else {}
    return {"capacityKey": CAPACITY, **times}


def _new(draw: Draw, name: str, *, shared: bool) -> Json:
    found: Json = {}
    if draw.chance(50):
        by_capacity = {"capacityKey": CAPACITY, "capacityMultiplier": draw.pick(AMOUNTS[name])}
        found["mapping"] = by_capacity if shared and draw.chance(70) else {"deviceMultiplier": draw.pick(AMOUNTS[name])}
    if not found or draw.chance(30):
        parts = draw.some(("perPod", "perContainer"), least=1)
        found["overhead"] = {part: draw.pick(AMOUNTS[name]) for part in parts}
    return found


def add_requests(draw: Draw, world: World) -> None:
    """Give nodes huge pages and pods requests, some with resources of the pod as a whole."""
    for node in world.nodes:
        if draw.chance(70):
            node["status"]["allocatable"]["hugepages-2Mi"] = draw.pick(("8Mi", "64Mi"))
    for group in world.groups:
        piece = _requests(draw)
        for pod in group:
            merge(pod["spec"]["containers"][0], {"resources": piece})
        if draw.chance(25):
            level = _level(draw)
            for pod in group:
                pod["spec"]["resources"] = level
    for pod in world.bound:
        if draw.chance(60):
            merge(pod["spec"]["containers"][0], {"resources": _requests(draw)})


def _requests(draw: Draw) -> Json:
    cpu, memory = draw.pick(("100m", "1", "2")), draw.pick(("1Gi", "2Gi", "6Gi"))
    found: Json = {"requests": {"cpu": cpu, "memory": memory}}
    if draw.chance(30):
        found["limits"] = {"cpu": cpu, "memory": memory}
    if draw.chance(15):
        found.setdefault("limits", {})["hugepages-2Mi"] = "4Mi"
    return found


def _level(draw: Draw) -> Json:
    """Return pod-level resources that are enough for what containers request, and for some devices beside it."""
    found: Json = {"requests": {"memory": draw.pick(("8Gi", "16Gi", "30Gi", "60Gi"))}}
    if draw.chance(60):
        found["requests"]["cpu"] = draw.pick(("3", "5", "12"))
    if draw.chance(40):
        found["limits"] = dict(found["requests"])
    return found


def users(draw: Draw, group: list[Json]) -> list[int]:
    """Return which containers of pods name their claim: one, each of two, or none."""
    if not draw.chance(35):
        return [0]
    if draw.chance(30):
        return []
    for pod in group:
        pod["spec"]["containers"].append({"name": "beside", "image": "i"})
    return draw.pick(([1], [0, 1]))


def add_status(draw: Draw, pod: Json, version: str) -> None:
    """Say in the status of a pod what its devices have taken."""
    name = pod["spec"]["resourceClaims"][0]["resourceClaimName"]
    resource = draw.pick(tuple(AMOUNTS))
    amount = draw.pick(AMOUNTS[resource])
    found: Json = {"resourceClaimName": name, "containers": ["main"]}
    if version == "1.36":
        found["resources"] = {resource: amount}
    elif draw.chance(50):
        found["mapping"] = [{"name": resource, "quantity": amount}]
    else:
        found["overhead"] = [{"name": resource, "perPod": amount, "perContainer": draw.pick(AMOUNTS[resource])}]
    pod["status"]["nodeAllocatableResourceClaimStatuses"] = [found]
