"""What pods ask of a node: containers, sidecars, init containers, overhead, pod-level resources, and resizes."""

from tests.conformance.filters.draws import Draw
from tests.conformance.filters.world import Json, World, merge

CPU = ("100m", "250m", "500m", "1", "1500m", "2")
MEMORY = ("128Mi", "512Mi", "1Gi", "1.5Gi", "2G", "0")
DISK = ("1Gi", "500M", "2Gi")
PAGES = ("2Mi", "4Mi", "16Mi")
HUGE, EXTENDED = "hugepages-2Mi", "example.com/widget"


def node_resources_fit(draw: Draw, world: World) -> None:
    """Nodes that are small and pods of every shape, so that each resource is what is short somewhere."""
    for node in world.nodes:
        node["status"] = {"allocatable": _allocatable(draw), "capacity": {"cpu": "64", "memory": "64Gi", "pods": "110"}}
    for group in world.groups:
        piece = _demand(draw)
        for pod in group:
            _ask(pod, piece)
    for pod in world.bound:
        if draw.chance(80):
            _ask(pod, _demand(draw))
        if draw.chance(18):
            _resize(draw, pod)


def _ask(pod: Json, piece: Json) -> None:
    """Give the pod what it asks instead of what it asked; its container that is there already is the first of them."""
    for amounts in pod["spec"]["containers"][0].get("resources", {}).values():
        for name in ("cpu", "memory", HUGE) if isinstance(amounts, dict) else ():
            amounts.pop(name, None)
    pod["spec"].pop("resources", None)
    first, *others = piece["containers"]
    merge(pod["spec"]["containers"][0], {name: given for name, given in first.items() if name != "name"})
    merge(pod["spec"], {**piece, "containers": others})


def _allocatable(draw: Draw) -> Json:
    found = {
        "cpu": draw.pick(("1", "2", "4", "8", "2500m")),
        "memory": draw.pick(("2Gi", "4Gi", "8Gi", "16Gi", "3G")),
        "pods": str(draw.weighted([(1, 8), (2, 12), (4, 20), (10, 60)])),
    }
    if draw.chance(90):
        found["ephemeral-storage"] = draw.pick(("1Gi", "4Gi", "10Gi"))
    if draw.chance(80):
        found[HUGE] = draw.pick(("0", "4Mi", "16Mi", "64Mi"))
    if draw.chance(80):
        found[EXTENDED] = str(draw.number(0, 6))
    return found


def _demand(draw: Draw) -> Json:
    containers = [_container(draw, f"c{at}") for at in range(draw.weighted([(1, 60), (2, 30), (3, 10)]))]
    piece: Json = {"containers": containers}
    if draw.chance(35):
        piece["initContainers"] = [_init(draw, f"i{at}") for at in range(draw.number(1, 3))]
    if draw.chance(20):
        piece["overhead"] = {"cpu": draw.pick(CPU[:3]), "memory": draw.pick(MEMORY[:2])}
    if draw.chance(20):
        _add_pod_level(draw, piece)
    return piece


def _init(draw: Draw, name: str) -> Json:
    found = _container(draw, name)
    if draw.chance(45):
        found["restartPolicy"] = "Always"
    return found


def _container(draw: Draw, name: str) -> Json:
    requests, limits = {}, {}
    if draw.chance(80):
        requests["cpu"] = draw.pick(CPU)
    if draw.chance(70):
        requests["memory"] = draw.pick(MEMORY)
    if draw.chance(20):
        requests["ephemeral-storage"] = draw.pick(DISK)
    if draw.chance(12) and "cpu" in requests:
        limits[HUGE] = draw.pick(PAGES)
    if draw.chance(20):
        limits[EXTENDED] = str(draw.number(0, 3))
    if draw.chance(12) and "memory" not in requests:
        limits["memory"] = draw.pick(MEMORY[:4])
    found: Json = {"name": name, "image": "i"}
    resources = {kind: given for kind, given in (("requests", requests), ("limits", limits)) if given}
    return found | ({"resources": resources} if resources else {})


def _add_pod_level(draw: Draw, piece: Json) -> None:
    """Give the pod resources of its own, above what its containers ask together, as the API server wants."""
    least = 2 * len([*piece["containers"], *piece.get("initContainers", ())])
    given: Json = {}
    if draw.chance(80):
        given["cpu"] = str(draw.number(least, least + 1))
    if draw.chance(50) or not given:
        given["memory"] = f"{draw.number(least, least + 1)}Gi"
    kind = draw.weighted([("requests", 80), ("limits", 20)])
    if kind == "limits":
        given = {
            name: amount.replace("Gi", "0Gi") if "Gi" in amount else f"{amount}0" for name, amount in given.items()
        }
    piece["resources"] = {kind: given}


def _resize(draw: Draw, pod: Json) -> None:
    """Say in the status that containers have other resources than the spec asks: a resize that is under way.

    1.36 adds up the most of each container, 1.37 takes the most of what they have together, and counts what is
    allocated though nothing is said of what is there.
    """
    statuses = []
    for container in pod["spec"]["containers"]:
        status: Json = {"name": container["name"], "ready": True, "restartCount": 0, "image": "i", "imageID": "i"}
        if draw.chance(80):
            status["allocatedResources"] = {"cpu": draw.pick(CPU), "memory": draw.pick(MEMORY)}
        if draw.chance(80):
            status["resources"] = {"requests": {"cpu": draw.pick(CPU), "memory": draw.pick(MEMORY)}}
        statuses.append(status)
    pod["status"]["containerStatuses"] = statuses
    told = any("resources" in status or "allocatedResources" in status for status in statuses)
    # Who refuses a resize for good is the kubelet, which says first what there is.
    if told and draw.chance(40):
        reason = draw.pick(("Infeasible", "Deferred"))
        pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    elif draw.chance(20):
        pod["status"]["conditions"] = [{"type": "PodResizeInProgress", "status": "True"}]
