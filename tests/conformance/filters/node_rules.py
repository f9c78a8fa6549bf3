"""Rules about the node itself: its name, taints, labels, ports and features."""

from typing import Any

from tests.conformance.filters.affinity import REQUIRED
from tests.conformance.filters.draws import Draw
from tests.conformance.filters.world import HOSTNAME, RACK, ZONE, Json, World, merge

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def node_name(draw: Draw, world: World) -> None:
    """Pods that name their node, which nobody but the maker of a pod does."""
    for pod in world.gang:
        if draw.chance(60):
            pod["spec"]["nodeName"] = draw.pick(world.named()) if draw.chance(90) else "gone"


def node_unschedulable(draw: Draw, world: World) -> None:
    """Cordoned nodes, with and without the taint that comes with it, and pods that tolerate it."""
    for node in world.nodes:
        if draw.chance(50):
            merge(node, {"spec": {"unschedulable": True}})
        if draw.chance(15):
            merge(node, {"spec": {"taints": [{"key": UNSCHEDULABLE, "effect": "NoSchedule"}]}})
    for group in world.groups:
        toleration = draw.weighted(
            [
                (None, 50),
                ({"key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"}, 20),
                ({"operator": "Exists"}, 10),
                ({"key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoExecute"}, 10),
                ({"key": UNSCHEDULABLE, "operator": "Equal", "value": "", "effect": ""}, 10),
            ]
        )
        for pod in group if toleration else ():
            merge(pod, {"spec": {"tolerations": [toleration]}})


TAINT_KEYS = ("dedicated", "gpu", "example.com/level")
NUMBERS = ("1", "5", "10", "-3", "007", "9223372036854775808", "many")
COMPARISON = "TaintTolerationComparisonOperators"


def taint_toleration(draw: Draw, world: World) -> None:
    """Taints of every effect and tolerations of every operator, those that compare numbers where their gate is on."""
    compared = draw.chance(30) and world.since(35)
    if compared:
        world.gates[COMPARISON] = True
    for node in world.nodes:
        for key in draw.some(TAINT_KEYS, most=2):
            taint: Json = {"key": key, "effect": draw.pick(("NoSchedule", "NoExecute", "PreferNoSchedule"))}
            if compared and draw.chance(70):
                taint["value"] = draw.pick(NUMBERS)
            elif draw.chance(70):
                taint["value"] = draw.pick(("x", "y"))
            merge(node, {"spec": {"taints": [taint]}})
    for group in world.groups:
        found = [_toleration(draw, compared=compared) for _ in range(draw.number(0, 3))]
        for pod in group if found else ():
            merge(pod, {"spec": {"tolerations": found}})


def _toleration(draw: Draw, *, compared: bool) -> Json:
    found: Json = {"key": draw.pick(TAINT_KEYS)}
    if compared and draw.chance(60):
        found |= {"operator": draw.pick(("Gt", "Lt")), "value": draw.pick(("1", "5", "6", "-3", "0", "11"))}
    elif draw.chance(50):
        found["operator"] = "Exists"
        if draw.chance(10):
            del found["key"]
    else:
        found["value"] = draw.pick(("x", "y", "x", "5"))
        if draw.chance(50):
            found["operator"] = "Equal"
    if draw.chance(50):
        found["effect"] = draw.pick(("NoSchedule", "NoExecute", "PreferNoSchedule"))
    if found.get("effect") == "NoExecute" and draw.chance(50):
        found["tolerationSeconds"] = 30
    return found


LEVEL = "example.com/level"
LEVELS = ("1", "5", "10", "0x5", "", "high", "1_0", "007", "9223372036854775807", "99999999999999999999")


def node_affinity(draw: Draw, world: World) -> None:
    """Node selectors and required terms, of all operators and of the one field that can be matched."""
    for node in world.nodes:
        if draw.chance(75):
            merge(node, {"metadata": {"labels": {LEVEL: draw.pick(LEVELS)}}})
        if draw.chance(40):
            merge(node, {"metadata": {"labels": {"disk": draw.pick(("ssd", "hdd"))}}})
    for group in world.groups:
        piece: Json = {}
        if draw.chance(35):
            piece["nodeSelector"] = draw.pick([{"disk": "ssd"}, {ZONE: "z1"}, {ZONE: "z1", "disk": "hdd"}, {LEVEL: ""}])
        if draw.chance(80):
            terms = [_node_term(draw, world) for _ in range(draw.weighted([(1, 60), (2, 30), (3, 10)]))]
            piece["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        for pod in group:
            merge(pod, {"spec": piece})


def _node_term(draw: Draw, world: World) -> Json:
    term: Json = {}
    if draw.chance(75):
        term["matchExpressions"] = [_node_expression(draw) for _ in range(draw.weighted([(1, 70), (2, 30)]))]
    if draw.chance(30):
        names = [*world.named(), "gone"]
        term["matchFields"] = [
            {
                "key": "metadata.name",
                "operator": draw.weighted([("In", 70), ("NotIn", 30)]),
                "values": [draw.pick(names)],
            }
        ]
        if draw.chance(10):
            term["matchFields"].append({"key": "metadata.name", "operator": "In", "values": [draw.pick(names)]})
    return term


def _node_expression(draw: Draw) -> Json:
    operator = draw.pick(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {
            "key": LEVEL,
            "operator": operator,
            "values": [draw.pick(("0", "1", "5", "7", "9", "x", "9223372036854775807"))],
        }
    key, values = draw.pick(
        [
            ("disk", ("ssd", "hdd")),
            (ZONE, ("z1", "z2")),
            (RACK, ("k1", "k2")),
            (HOSTNAME, ("n1", "n2")),
            (LEVEL, ("5", "")),
        ]
    )
    if operator in ("In", "NotIn"):
        return {"key": key, "operator": operator, "values": draw.some(values, least=1)}
    return {"key": key, "operator": operator}


ADDRESSES = (None, None, None, "0.0.0.0", "127.0.0.1", "10.0.0.1", "::")  # noqa: S104 of pods that never run
PORTS = (80, 443, 8080)


def node_ports(draw: Draw, world: World) -> None:
    """Ports of the host: of containers and sidecars, by address and protocol, and of pods in the host's network."""
    for group in world.groups:
        piece = _with_ports(draw)
        for pod in group:
            merge(pod["spec"], piece)
            _give_ports(pod, piece)
    for pod in world.bound:
        if draw.chance(50):
            merge(pod["spec"], piece := _with_ports(draw))
            _give_ports(pod, piece)


def _with_ports(draw: Draw) -> Json:
    host = draw.chance(20)
    piece: Json = {"hostNetwork": True} if host else {}
    ports = [_port(draw, port, host=host) for port in draw.some(PORTS, least=1, most=2)]
    where = draw.weighted([("main", 75), ("sidecar", 15), ("init", 10)])
    if where == "main":
        return piece | {"ports": ports}
    container: Json = {"name": "first", "image": "i", "ports": ports}
    if where == "sidecar":
        container["restartPolicy"] = "Always"
    return piece | {"initContainers": [container]}


def _give_ports(pod: Json, piece: Json) -> None:
    pod["spec"].pop("ports", None)
    if "ports" in piece:
        merge(pod["spec"]["containers"][0], {"ports": piece["ports"]})


def _port(draw: Draw, port: int, *, host: bool) -> Json:
    found: Json = {"containerPort": port}
    if host:
        # With hostNetwork both ports are one, which may be left to a default.
        if draw.chance(60):
            found["hostPort"] = port
    elif draw.chance(90):
        found["hostPort"] = port
    if draw.chance(40):
        found["protocol"] = draw.pick(("TCP", "UDP", "SCTP"))
    if (address := draw.pick(ADDRESSES)) is not None:
        found["hostIP"] = address
    return found


FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport")


def node_declared_features(draw: Draw, world: World) -> None:
    """Pods that need a feature that kubelets declare, and nodes that do or do not.

    Nothing before 1.36, where the plugin is off, and the API server takes no pod that needs such a feature.
    """
    if not world.since(36):
        return
    gates: dict[str, bool] = {FEATURES[0]: True, "ContainerRestartRules": True, FEATURES[1]: True}
    world.gates |= gates
    for node in world.nodes:
        if declared := draw.some(FEATURES):
            merge(node, {"status": {"declaredFeatures": declared}})
    for group in world.groups:
        piece: dict[str, Any] = draw.weighted(
            [({}, 20), (_restarts(), 40), ({"hostNetwork": True, "hostUsers": False}, 40)]
        )
        for pod in group:
            container = piece.get("container", {})
            merge(pod["spec"]["containers"][0], container)
            merge(pod["spec"], {name: value for name, value in piece.items() if name != "container"})


def _restarts() -> Json:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    return {"container": {"restartPolicy": "Never", "restartPolicyRules": [rule]}, "restartPolicy": "Never"}
