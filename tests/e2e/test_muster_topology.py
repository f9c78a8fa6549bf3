"""Gangs that stay in one rack, on a real control plane: with devices that Muster gives, and with those of first fit."""

from admission.api.values import names
from tests.controlplane import workloads
from tests.controlplane.observing import eventually
from tests.e2e import fixtures
from tests.e2e.labs import RACK, Lab, exactly, put_into_rack, racks_of
from tests.e2e.teams import GROUP

FENCED, OPEN = "rack-fenced.test", "rack-open.test"
PLACEMENTS = {"Allocate": FENCED, "Pin": OPEN}


muster = fixtures.muster(fence=[FENCED])
lab = fixtures.lab_in_racks(PLACEMENTS)


def submit(lab: Lab, name: str, pods: int, *, key: str = names.TOPOLOGY, **more: object) -> None:
    """Create a Job whose pods want two devices each, and to be together."""
    lab.submit(name, pods=pods, request=exactly(lab, 2), annotations={key: RACK}, **more)


def domains_of(lab: Lab, name: str) -> list[str]:
    status = lab.team.status(name)
    return list(status.get("topology", {}).get("domains", []))


def test_a_gang_waits_until_one_rack_takes_all_of_it(lab: Lab) -> None:
    submit(lab, "first", 1, nodeSelector={RACK: "r1"})
    lab.wait_running("first", 1)

    submit(lab, "pair", 2)
    hold = lab.team.wait_held("pair", "DevicesBusy")
    lab.team.finish("first")
    lab.wait_running("pair", 2)

    assert hold["message"].startswith(f"no domain of {RACK} takes the whole gang now; r1 could, and has places for 1: ")
    assert racks_of(lab, "pair") == ["r1", "r1"]
    assert lab.team.placed("pair")[0] == {driver: mode for mode, driver in PLACEMENTS.items()}[lab.driver]
    eventually(lambda: domains_of(lab, "pair") == ["r1"], what="the status says where it is")
    why = lab.muster.command("why", f"{lab.namespace.name}/pair")
    assert f"Its pods have to be in one domain of {RACK}; they are in r1." in why
    lab.end("pair")


def test_a_rack_becomes_larger_while_a_gang_waits_for_it(lab: Lab) -> None:
    submit(lab, "three", 3)
    hold = lab.team.wait_held("three", "NoFeasiblePlacement")

    put_into_rack(lab, f"three-{lab.driver.partition('.')[0]}", "r1")

    assert (
        f"none of 2 domains of {RACK} takes all 3 pods together; r1 comes nearest, with places for 2" in hold["message"]
    )
    lab.wait_running("three", 3)
    assert racks_of(lab, "three") == ["r1", "r1", "r1"]
    lab.end("three")


def test_each_subgroup_of_a_gang_is_in_one_rack(lab: Lab) -> None:
    """Only r1 takes the two pods of the pair; the third one finds its place in r2."""
    lab.namespace.create(workloads.claim_template("two", exactly(lab, 2)))
    parts = {"pair-0": "pair", "pair-1": "pair", "one-0": "one"}
    labels = {names.GANG: "parted", names.GANG_SIZE: "3"}
    for name, part in parts.items():
        said = {names.SUBGROUP: part, names.SUBGROUP_TOPOLOGY: RACK}
        lab.namespace.create(workloads.pod(name, template="two", labels=labels, annotations=said))

    def placed() -> dict[str, str] | None:
        pods = [pod for pod in lab.client.items(lab.namespace.pods) if pod["metadata"]["name"] in parts]
        running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in running} if len(running) == 3 else None

    nodes = eventually(placed, what="the three pods run")
    racks = {name: lab.client.get(f"/api/v1/nodes/{node}")["metadata"]["labels"][RACK] for name, node in nodes.items()}
    assert racks == {"pair-0": "r1", "pair-1": "r1", "one-0": "r2"}

    def told() -> list[tuple[str, object]]:
        gang = lab.client.find(f"{GROUP}/namespaces/{lab.namespace.name}/gangs/parted") or {}
        parts = gang.get("status", {}).get("topology", {}).get("subgroups", [])
        return [(one["name"], one.get("domains")) for one in parts]

    eventually(lambda: told() == [("one", ["r2"]), ("pair", ["r1"])], what="the status says where they are")
    why = lab.muster.command("why", f"{lab.namespace.name}/parted")
    assert f"Those of subgroup pair have to be in one domain of {RACK}; they are in r1." in why
    for name in parts:
        lab.client.delete(f"{lab.namespace.pods}/{name}?gracePeriodSeconds=0")
    lab.end()


def test_a_gang_that_would_rather_be_together_starts_apart_and_is_told_why(lab: Lab) -> None:
    submit(lab, "apart", 3, key=names.TOPOLOGY_PREFERRED)
    lab.wait_running("apart", 3)

    assert racks_of(lab, "apart") == ["r1", "r1", "r2"]
    eventually(lambda: domains_of(lab, "apart") == ["r1", "r2"], what="the status says where it is")
    path = f"/apis/events.k8s.io/v1/namespaces/{lab.namespace.name}/events"
    why = f"none of 2 domains of {RACK} takes all 3 pods together"
    eventually(
        lambda: any(why in event["note"] for event in lab.client.items(path) if event["reason"] == "NotTogether"),
        what="an Event tells why",
    )
    lab.end("apart")

    submit(lab, "close", 2, key=names.TOPOLOGY_PREFERRED)
    lab.wait_running("close", 2)
    assert racks_of(lab, "close") == ["r1", "r1"]
    lab.end("close")
