"""Reports: what is written, and above all what is not written again."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.meta import Condition, ConditionStatus, Owner
from admission.api.muster import gangs
from admission.api.muster.gangs import GangReport, Phase, PlannedClaim, PlannedPod
from admission.api.muster.status_reports import ConditionReport, MeterUse, QueueReport, QueueSummary
from admission.api.schemas import crds
from admission.api.snapshot import Snapshot
from admission.api.values.names import MeterName, NodeName, QueueName, Uid
from admission.api.values.reasons import Denial, DenyReason, Hold, HoldReason
from admission.dra.metering import device_meters
from admission.errors import FixError, MalformedObjectError, Problem
from admission.kube.cache import watched_resources
from admission.kube.cache.store import Store
from admission.kube.client.connection import Connection, PatchKind
from admission.kube.writers import status_encoding
from admission.kube.writers.status import Reporter
from admission.status import gang as status_gang
from tests.integration.kube.fake_api import FakeApi, status
from tests.integration.kube.reports import START, a_report, ticking

GANGS = watched_resources.GANGS.path
GANG = "/apis/muster.dev/v1alpha1/namespaces/team/gangs/train"
COLLECTION = GANG.rpartition("/")[0]
QUEUE = f"{watched_resources.QUEUES.path}/q"
HOLD = Hold(HoldReason.QUOTA_EXCEEDED, "3 left", {"left": "3"})


def a_condition(holds: ConditionStatus = ConditionStatus.TRUE, message: str = "it admits") -> Condition:
    return Condition(type="Active", status=holds, reason="Why", message=message)


async def test_a_gang_is_made_once_and_belongs_to_its_workload(api: FakeApi, reporter: Reporter) -> None:
    await reporter.gang(a_report(pods=1))

    sent = api.last("POST", COLLECTION)
    workload = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-1"}
    assert sent.body["metadata"]["ownerReferences"] == [{**workload, "controller": False, "blockOwnerDeletion": False}]
    assert sent.body["spec"] == {"queue": "q", "size": 2, "priority": 0, "workload": workload}
    read = gangs.decode(api.objects[GANGS]["team/train"])
    assert (read.queue, read.size, read.phase) == ("q", 2, Phase.PENDING)


async def test_the_same_report_is_not_written_again(api: FakeApi, reporter: Reporter) -> None:
    for _ in range(3):
        await reporter.gang(a_report(hold=HOLD))
        await reporter.queue(QueueReport(name=QueueName("q")))

    assert api.count("POST", COLLECTION) == 1
    assert api.count("PATCH", f"{GANG}/status") == 1


async def test_a_new_leader_does_not_write_a_gang_status_that_is_already_there(
    api: FakeApi, connection: Connection
) -> None:
    await Reporter(connection, clock=ticking()).gang(a_report(hold=HOLD))

    await Reporter(connection, clock=ticking()).gang(a_report(hold=HOLD))

    assert api.count("PATCH", f"{GANG}/status") == 1


@pytest.mark.parametrize("writer", ["a deposed leader", "a user"])
async def test_what_another_writes_over_a_status_is_corrected_by_the_next_report(
    api: FakeApi, connection: Connection, writer: str
) -> None:
    """A leader that was paused in the middle of a write, and goes on when another one has written its last report."""
    store = Store((watched_resources.QUEUES,))
    table = store.tables[watched_resources.QUEUES]
    api.put(watched_resources.QUEUES.path, {"metadata": {"name": "q"}})

    def seen() -> dict[str, Any]:
        queue: dict[str, Any] = api.objects[watched_resources.QUEUES.path]["q"]
        table.put(queue)
        return queue

    seen()
    leader, report = Reporter(connection, store, clock=lambda: START), QueueReport(name=QueueName("q"))
    await leader.queue(report)
    right = seen()["status"]
    before = replace(report, gangs={Phase.RUNNING: 2})
    if writer == "a user":
        await connection.patch(f"{QUEUE}/status", {"status": {"gangs": {"Running": 9}}}, PatchKind.MERGE)
    else:
        await Reporter(connection, clock=lambda: START).queue(before)
    assert seen()["status"] != right

    reads = api.count("GET", QUEUE)
    await leader.queue(report)
    assert seen()["status"] == right
    await leader.queue(report)
    assert api.count("GET", QUEUE) == reads + 1, "its own write is not read again"


async def test_a_gang_without_pods_is_made_only_if_they_went_before_its_object_was(
    api: FakeApi, reporter: Reporter
) -> None:
    await reporter.gang(a_report(pods=0, phase=Phase.FINISHED))
    assert api.count("POST", COLLECTION) == 0

    await reporter.gang(a_report(pods=0, phase=Phase.FINISHED, had_pods=True))

    assert api.objects[GANGS]["team/train"]["status"]["phase"] == "Finished"


async def test_times_say_since_when_something_is_so(api: FakeApi, reporter: Reporter) -> None:
    def since(kind: str) -> str:
        conditions = api.objects[GANGS]["team/train"]["status"]["conditions"]
        return next(str(c["lastTransitionTime"]) for c in conditions if c["type"] == kind)

    await reporter.gang(a_report(hold=HOLD))
    began = since("Admitted")
    await reporter.gang(a_report(hold=Hold(HoldReason.QUOTA_EXCEEDED, "2 left", {"left": "2"})))
    shown = api.objects[GANGS]["team/train"]["status"]["hold"]
    assert (shown["since"], shown["message"]) == (began, "2 left")

    await reporter.gang(a_report(hold=Hold(HoldReason.DEVICES_BUSY, "busy")))
    assert api.objects[GANGS]["team/train"]["status"]["hold"]["since"] > began
    assert since("Admitted") == began

    await reporter.gang(a_report(phase=Phase.RUNNING))
    assert "hold" not in api.objects[GANGS]["team/train"]["status"]
    assert since("Admitted") > began
    assert since("Finished") == began


async def test_the_spec_that_a_user_wrote_stays(api: FakeApi, reporter: Reporter) -> None:
    api.put(GANGS, {"metadata": {"name": "train", "namespace": "team"}, "spec": {"queue": "q", "size": 9}})

    await reporter.gang(a_report())

    assert api.count("PATCH", GANG) == 0
    assert api.count("PATCH", f"{GANG}/status") == 1


async def test_a_workload_that_grew_changes_its_gang(api: FakeApi, reporter: Reporter) -> None:
    await reporter.gang(a_report())
    await reporter.gang(a_report(size=5))

    assert api.objects[GANGS]["team/train"]["spec"]["size"] == 5


async def test_the_gang_of_an_earlier_workload_is_replaced(api: FakeApi, connection: Connection) -> None:
    await Reporter(connection).gang(a_report())
    first = api.objects[GANGS]["team/train"]["metadata"]["uid"]
    again = Owner(api_version="batch/v1", kind="Job", name="train", uid=Uid("job-2"), controller=True)

    await Reporter(connection).gang(a_report(workload=again))

    second = api.objects[GANGS]["team/train"]
    assert api.last("DELETE", GANG).body["preconditions"] == {"uid": first}
    assert second["metadata"]["ownerReferences"][0]["uid"] == "job-2"


@pytest.mark.parametrize("report", [a_report(workload=None), a_report()], ids=["of no workload", "of a workload"])
async def test_a_gang_of_which_nothing_is_left_is_removed(api: FakeApi, reporter: Reporter, report: GangReport) -> None:
    await reporter.gang(report)
    uid = api.objects[GANGS]["team/train"]["metadata"]["uid"]

    await reporter.gang(replace(report, pods=0, phase=Phase.FINISHED, over=True))

    assert api.last("DELETE", GANG).body["preconditions"] == {"uid": uid}
    assert "team/train" not in api.objects[GANGS]


async def test_a_gang_that_is_another_s_to_remove_is_left_alone(api: FakeApi, connection: Connection) -> None:
    """A user's own, and one that the garbage collector takes along."""
    api.put(GANGS, {"metadata": {"name": "train", "namespace": "team"}, "spec": {"queue": "q", "size": 9}})
    await Reporter(connection).gang(a_report(workload=None, pods=0, over=True))
    api.delete(GANGS, "team/train")
    await Reporter(connection).gang(a_report())
    await Reporter(connection).gang(a_report(workload=None, pods=0, over=True))

    assert api.count("DELETE", GANG) == 0


@pytest.fixture
def store() -> Store:
    """A store that has listed the Gangs: there are none."""
    store = Store((watched_resources.GANGS,))
    store.tables[watched_resources.GANGS].keep_only(set())
    return store


async def test_a_deleted_gang_object_is_created_again_while_the_gang_has_pods(
    api: FakeApi, connection: Connection, store: Store
) -> None:
    reporter = Reporter(connection, store)
    await reporter.gang(a_report())
    store.tables[watched_resources.GANGS].put(api.objects[GANGS]["team/train"])
    await reporter.gang(a_report())
    assert api.count("GET", GANG) == 0, "what is not there is not read, nor what is there"

    store.tables[watched_resources.GANGS].drop(api.objects[GANGS]["team/train"])
    api.delete(GANGS, "team/train")
    await reporter.gang(a_report(pods=0, phase=Phase.FINISHED))
    assert api.count("POST", COLLECTION) == 1
    assert api.count("GET", GANG) == 0, "of a gang that is over, what the watch shows as gone is not read"
    await reporter.gang(a_report())
    assert api.count("POST", COLLECTION) == 2


async def test_a_gang_spec_written_by_a_user_stays_also_before_the_store_shows_the_gang(
    api: FakeApi, connection: Connection, store: Store
) -> None:
    api.put(GANGS, {"metadata": {"name": "train", "namespace": "team"}, "spec": {"queue": "q", "size": 9}})
    api.answer("POST", COLLECTION, 409, status(409, "AlreadyExists", "exists"))

    await Reporter(connection, store).gang(a_report())

    assert api.objects[GANGS]["team/train"]["spec"]["size"] == 9
    assert api.objects[GANGS]["team/train"]["status"]["pods"] == 1


async def test_a_gang_that_vanishes_between_two_writes_is_made_by_the_next_report(
    api: FakeApi, reporter: Reporter
) -> None:
    await reporter.gang(a_report())
    api.delete(GANGS, "team/train")

    await reporter.gang(a_report(pods=2))
    await reporter.gang(a_report(pods=2))

    assert api.objects[GANGS]["team/train"]["status"]["pods"] == 2


async def test_no_gang_is_made_in_a_namespace_that_ends(api: FakeApi, reporter: Reporter) -> None:
    ending = status(403, "Forbidden", "unable to create new content")
    ending["details"] = {"name": "train", "causes": [{"reason": "NamespaceTerminating"}]}
    api.answer("POST", COLLECTION, 403, ending)

    await reporter.gang(a_report())

    assert api.count("PATCH", f"{GANG}/status") == 0


async def test_a_queue_shows_its_use(api: FakeApi, reporter: Reporter) -> None:
    api.put(watched_resources.QUEUES.path, {"metadata": {"name": "q"}})
    use = {MeterName("gpus"): MeterUse(nominal=8, used=2**40, pending=3), MeterName("bytes"): MeterUse()}
    report = QueueReport(
        name=QueueName("q"), generation=4, conditions=(a_condition(),), meters=use, gangs={Phase.RUNNING: 2}
    )

    await reporter.queue(report)

    shown = api.objects[watched_resources.QUEUES.path]["q"]["status"]
    assert shown == {
        "observedGeneration": 4,
        "conditions": [
            {
                "type": "Active",
                "status": "True",
                "reason": "Why",
                "message": "it admits",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "observedGeneration": 4,
            }
        ],
        "meters": [
            {"meter": "bytes", **dict.fromkeys(("nominal", "reserved", "used", "borrowed", "lent", "pending"), "0")},
            {
                "meter": "gpus",
                "nominal": "8",
                "reserved": "0",
                "used": "1Ti",
                "borrowed": "0",
                "lent": "0",
                "pending": "3",
            },
        ],
        "summary": {"waiting": 0, "started": 0},
        "gangs": {"pending": 0, "reserved": 0, "admitted": 0, "running": 2, "evicted": 0},
    }


async def test_conditions_go_to_their_kind(api: FakeApi, reporter: Reporter) -> None:
    for plural in ("meters", "claimpolicies"):
        api.put(f"/apis/muster.dev/v1alpha1/{plural}", {"metadata": {"name": "x"}})
        await reporter.conditions(ConditionReport(plural=plural, name="x", generation=1, conditions=(a_condition(),)))

    assert api.last("PATCH", "/apis/muster.dev/v1alpha1/meters/x/status").body["kind"] == "Meter"
    assert api.last("PATCH", "/apis/muster.dev/v1alpha1/claimpolicies/x/status").body["kind"] == "ClaimPolicy"
    with pytest.raises(FixError, match="not of pods"):
        await reporter.conditions(ConditionReport(plural="pods", name="x", generation=1, conditions=()))


async def test_a_shape_that_cannot_be_read_goes_on_to_say_when_its_nodes_were_last_up(
    api: FakeApi, reporter: Reporter
) -> None:
    up = {"type": "Up", "status": "False", "reason": "NoNodes", "message": "none", "lastTransitionTime": "2026-01-01"}
    stored = {"metadata": {"name": "x"}, "status": {"conditions": [up, {"type": "Ready", "status": "True"}]}}
    api.put("/apis/muster.dev/v1alpha1/nodeshapes", stored)
    error = MalformedObjectError("NodeShape", "x", (Problem("spec.maxCount", "is odd"),))
    snapshot = Snapshot(malformed={("NodeShape", "x"): error})

    (report,) = status_gang.conditions(snapshot, device_meters.NONE)
    await reporter.conditions(report)

    written = api.last("PATCH", "/apis/muster.dev/v1alpha1/nodeshapes/x/status").body["status"]["conditions"]
    ready, kept = written
    assert (ready["reason"], ready["message"]) == ("Malformed", "NodeShape x: spec.maxCount: is odd")
    assert kept == up


async def test_reports_of_what_is_gone_do_no_harm(api: FakeApi, reporter: Reporter) -> None:
    await reporter.queue(QueueReport(name=QueueName("q")))
    await reporter.conditions(ConditionReport(plural="meters", name="m", generation=1, conditions=()))

    assert not [asked for asked in api.asked if asked.method == "PATCH"]


def test_every_field_of_a_report_is_in_the_schema() -> None:
    device = RequestDevice(request="gpu", device=DeviceId("gpu.example.com", "n1", "gpu-0"))
    claim = PlannedClaim(uid=Uid("c"), claim="team/train-gpu", devices=(device,))
    report = a_report(
        hold=HOLD,
        position=1,
        plan=(PlannedPod(uid=Uid("p"), pod="team/train-0", node=NodeName("n1"), claims=(claim,)),),
        charges={MeterName("gpus"): 8},
        placement="Pin",
        queued_since=START,
        next_try=START,
    )
    written = {
        "gangs": status_encoding.gang_status(report, {}, now=START),
        "queues": status_encoding.queue_status(
            QueueReport(
                name=QueueName("q"),
                conditions=(a_condition(),),
                meters={MeterName("m"): MeterUse()},
                summary=QueueSummary(meter="m", used=2, quota=1024),
            ),
            {},
            now=START,
        ),
    }

    for plural, shown in written.items():
        schema = crds.schema_of(crds.all_definitions()[plural])
        assert unknown(shown, schema["properties"]["status"]) == []
    assert unknown(status_encoding.gang(report)["spec"], gang_spec()) == []
    assert written["gangs"]["plan"][0]["pod"] == "train-0"


def gang_spec() -> dict[str, Any]:
    schema = crds.schema_of(crds.all_definitions()["gangs"])
    return dict(schema["properties"]["spec"])


def unknown(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Return paths of fields that the API server would drop."""
    if isinstance(value, list):
        return [name for item in value for name in unknown(item, schema["items"], path)]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    found = []
    for key, item in value.items():
        inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
        found += [f"{path}.{key}"] if inner is None else unknown(item, inner, f"{path}.{key}")
    return found


def test_a_denial_is_shown_like_a_hold() -> None:
    report = a_report(hold=Denial(DenyReason.NEVER_FITS, "never"))

    shown = status_encoding.gang_status(report, {}, now=START)

    assert shown["hold"]["reason"] == "NeverFits"
    told = {condition["type"]: condition["reason"] for condition in shown["conditions"]}
    assert told == {"Admitted": "NeverFits", "Running": "Pending", "Finished": "Pending"}
