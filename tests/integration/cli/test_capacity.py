"""`muster capacity`: how many gangs of a shape start, what stops the next one, and at whose cost."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.testing import CliRunner, Result

from admission import cli
from admission.api.capacity import gang_shapes
from admission.api.capacity.gang_shapes import PodShape
from admission.api.kubernetes import claims
from admission.api.muster.ledger_entries import Waited, WaitingShape
from admission.api.values.decoding import Reader
from admission.api.values.names import QueueName
from admission.cli.capacity import copies
from admission.ledger.sql_ledger import SqlLedger
from tests.builders import CLASS
from tests.integration.ledgers import CLUSTER, ON_SQLITE

OFFLINE = Path(__file__).parents[3] / "config" / "examples" / "offline"
"""Two nodes with four GPUs each."""

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    runner = CliRunner()
    return lambda *words: runner.invoke(cli.app, ("capacity", *words))


def a_queue(name: str, nominal: int, **spec: Any) -> dict[str, Any]:
    quotas = [{"meter": "gpus", "nominal": nominal}]
    return _muster("Queue", name, {"namespaceSelector": {}, "quotas": quotas, **spec})


def _muster(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def a_job(name: str, *, queue: str, pods: int, gpus: int) -> list[dict[str, Any]]:
    """Return a Job and the template of its pods' claims."""
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": gpus}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    spec = {
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "template": {"metadata": {"labels": {"muster.dev/queue": queue}}, "spec": spec},
        },
    }
    return [template, job]


METER = _muster("Meter", "gpus", {"unit": "GPU", "sources": [{"deviceClasses": [CLASS], "count": {}}]})
COUNTED = [METER, a_queue("q", 100)]
LENDING = [
    METER,
    _muster("Queue", "root", {}),
    a_queue("q", 4, parent="root", preemption={"reclaim": "Any"}),
    a_queue("other", 4, parent="root"),
]


class Case(NamedTuple):
    """What is in the cluster beside eight GPUs, the shape, and the answer."""

    bodies: list[dict[str, Any]]
    shape: str
    starts: int
    reason: str
    instead_of: tuple[str, ...] = ()


CASES = {
    "pods of one device each, until all devices are given": Case(COUNTED, "1x1", 8, "DevicesBusy"),
    "gangs over both nodes": Case(COUNTED, "2x2", 2, "DevicesBusy"),
    "what is left in pieces helps none": Case(COUNTED, "1x3", 2, "DevicesBusy"),
    "more than any node has": Case(COUNTED, "1x5", 0, "NoFeasiblePlacement"),
    "the quota stops the next one": Case([METER, a_queue("q", 3)], "1x1", 3, "QuotaExceeded"),
    "what waits goes first": Case([*COUNTED, *a_job("first", queue="q", pods=1, gpus=4)], "1x2", 2, "DevicesBusy"),
    "a gang that starts only while the queue leaves its quota": Case(
        [*LENDING, *a_job("loan", queue="other", pods=2, gpus=4)], "1x4", 2, "QuotaExceeded", ("ml/loan",)
    ),
}


def answer(run: Run, folder: Path, bodies: list[dict[str, Any]], *words: str) -> tuple[int, list[dict[str, Any]]]:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    result = run(str(OFFLINE), str(file), "-n", "ml", "--format", "json", *words)
    assert result.exit_code in {0, 3}, result.output
    return result.exit_code, json.loads(result.stdout)["shapes"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_shape_starts_as_often_as_it_fits(case: Case, run: Run, tmp_path: Path) -> None:
    code, [found] = answer(run, tmp_path, case.bodies, "--queue", "q", "--shape", f"{case.shape}:{CLASS}")

    assert (found["starts"], found["reason"], found["insteadOf"]) == (case.starts, case.reason, [*case.instead_of])
    assert code == (0 if case.starts else 3)
    assert (found["atLeast"], bool(found["message"])) == (False, True)


def test_a_job_of_a_file_starts_as_often_as_the_shape_that_it_has(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump_all(a_job("train", queue="q", pods=2, gpus=2)))

    words = ("--queue", "q", "--shape", f"2x2:{CLASS}", "--gang", str(file))
    _, [shape, job] = answer(run, tmp_path, COUNTED, *words)

    assert job["shape"] == str(file)
    assert (job["starts"], job["reason"]) == (shape["starts"], shape["reason"]) == (2, "DevicesBusy")


def test_where_all_start_that_are_tried_there_may_be_more(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--queue", "q", "--shape", f"2x1:{CLASS}")
    _, [three] = answer(run, tmp_path, COUNTED, *words, "--most", "3")
    monkeypatch.setattr(copies, "MOST_PODS", 5)
    _, [two] = answer(run, tmp_path, COUNTED, *words)

    assert [(one["starts"], one["atLeast"], one["reason"]) for one in (three, two)] == [
        (3, True, None),
        (2, True, None),
    ]
    file = tmp_path / "cluster.yaml"
    text = run(str(OFFLINE), str(file), "-n", "ml", *words).stdout
    assert f"2x1:{CLASS}  2 or more" in text


REFUSED = {
    "nothing is asked for": ((), "name a gang, as --shape 8x8:gpu.example.com or --gang train.yaml"),
    "a shape without a class": (("--shape", "8x8"), "'8x8' is not pods x devices : class"),
    "a shape without pods": (("--shape", f"0x8:{CLASS}"), "is not pods x devices : class"),
    "a shape of too many pods": (("--shape", f"10001x8:{CLASS}"), "with at most 10000 pods"),
    "no quantity": (
        ("--shape", f"1x1:{CLASS}", "--request", "cpu=abc"),
        "resources.requests[cpu]: quantities must match",
    ),
    "no queue's name": (("--shape", f"1x1:{CLASS}", "-q", "Bad Queue"), "'Bad Queue' is not a label's value"),
    "no namespace's name": (("--shape", f"1x1:{CLASS}", "-n", "Bad Name"), "in namespace Bad Name"),
    "a file without a Job": (("--gang", str(OFFLINE)), "it needs one Job with a name, and has 0"),
}


@pytest.mark.parametrize(("words", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_tried_is_an_error_with_its_mend(words: tuple[str, ...], says: str, run: Run) -> None:
    result = run(str(OFFLINE), *words)

    assert result.exit_code != 0
    assert says in str(result.exception)


def kept_to(node: str, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a Job whose pods go to one node."""
    template, job = bodies
    job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return [template, job]


def in_pieces(
    run: Run, folder: Path, bodies: list[dict[str, Any]], *words: str, hardware: Sequence[str] = (str(OFFLINE),)
) -> dict[str, Any]:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    result = run(*hardware, str(file), "-n", "ml", "--format", "json", "--pieces", "--queue", "q", *words)
    assert result.exit_code in {0, 3}, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def running(name: str, node: str, gpus: Sequence[int]) -> list[dict[str, Any]]:
    """Return a pod that runs, and its claim."""
    given = [{"request": "gpu", "driver": CLASS, "pool": node, "device": f"gpu-{at}"} for at in gpus]
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": len(gpus)}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": {"devices": {"results": given}}},
    }
    spec = {
        "nodeName": node,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "labels": {"muster.dev/queue": "q"}},
        "spec": spec,
        "status": {"phase": "Running"},
    }
    return [claim, pod]


def test_free_devices_are_shown_with_the_shapes_that_could_use_them_and_what_a_move_would_free(
    run: Run, tmp_path: Path
) -> None:
    small, large = running("small", "node-a", [0]), running("large", "node-b", [0, 1, 2])

    found = in_pieces(run, tmp_path, [*COUNTED, *small, *large], "--shape", f"1x4:{CLASS}", "--shape", f"1x2:{CLASS}")

    assert [(one["node"], one["free"], one["devices"], [*one["usable"].values()]) for one in found["free"]] == [
        ("node-a", 3, 4, [0, 2]),
        ("node-b", 1, 4, [0, 0]),
    ]
    moves = [(one["gang"], one["shape"], one["from"], one["to"], one["starts"]) for one in found["moves"]]
    assert moves == [
        ("ml/small", f"1x4:{CLASS}", ["node-a"], ["node-b"], 1),
        ("ml/large", f"1x4:{CLASS}", ["node-b"], ["node-a"], 1),
        ("ml/small", f"1x2:{CLASS}", ["node-a"], ["node-b"], 1),
    ]


def test_no_move_is_proposed_of_a_gang_that_asks_for_its_node(run: Run, tmp_path: Path) -> None:
    small = kept_to("node-a", a_job("small", queue="q", pods=1, gpus=1))
    large = kept_to("node-b", a_job("large", queue="q", pods=1, gpus=3))

    assert in_pieces(run, tmp_path, [*COUNTED, *small, *large], "--shape", f"1x4:{CLASS}")["moves"] == []


def test_no_move_is_proposed_of_a_gang_that_would_find_no_other_place(run: Run, tmp_path: Path) -> None:
    there = [kept_to(f"node-{at}", a_job(f"on-{at}", queue="q", pods=1, gpus=2)) for at in "ab"]
    full = [kept_to(f"node-{at}", a_job(f"beside-{at}", queue="q", pods=1, gpus=2)) for at in "ab"]

    found = in_pieces(
        run, tmp_path, [*COUNTED, *(one for pair in (*there, *full) for one in pair)], "--shape", f"1x2:{CLASS}"
    )

    assert (found["free"], found["moves"]) == ([], [])


def racks(count: int) -> list[dict[str, Any]]:
    """Return nodes with four GPUs, each in a rack of its own."""
    selector = {"cel": {"expression": f"device.driver == '{CLASS}'"}}
    bodies: list[dict[str, Any]] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": CLASS},
            "spec": {"selectors": [selector]},
        }
    ]
    for name in (f"rack-{number}" for number in range(1, count + 1)):
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, "example.com/rack": name}}
        allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110"}
        bodies.append({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": allocatable}})
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{at}"} for at in range(4)]
        spec = {"driver": CLASS, "nodeName": name, "pool": pool, "devices": devices}
        slice_ = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
        bodies.append(slice_)
    return bodies


RACK = {"muster.dev/topology": "example.com/rack"}


def test_a_gang_that_has_to_be_in_one_rack_uses_no_pieces_of_two(run: Run, tmp_path: Path) -> None:
    template, job = a_job("train", queue="q", pods=2, gpus=2)
    job["spec"]["template"]["metadata"]["annotations"] = RACK
    train = tmp_path / "train.yaml"
    train.write_text(yaml.safe_dump_all([template, job]))
    there = [*running("small", "rack-1", [0]), *running("large", "rack-2", [0, 1])]

    words = ("--gang", str(train), "--shape", f"2x2:{CLASS}")
    found = in_pieces(run, tmp_path, [*COUNTED, *racks(2), *there], *words, hardware=())

    assert {one["shape"]: one["starts"] for one in found["shapes"]} == {f"2x2:{CLASS}": 1, str(train): 0}
    assert {one["node"]: [*one["usable"].values()] for one in found["free"]} == {"rack-1": [2, 0], "rack-2": [2, 0]}
    moves = [(one["gang"], one["to"]) for one in found["moves"] if one["shape"] == str(train)]
    assert moves == [("ml/small", ["rack-2"]), ("ml/large", ["rack-1"])]


@pytest.mark.parametrize("annotations", [{}, RACK], ids=["anywhere", "in one rack"])
def test_a_running_gang_is_moved_to_one_rack_if_it_has_to_be_in_one(
    annotations: dict[str, str], run: Run, tmp_path: Path
) -> None:
    there = [*running("second", "rack-2", [0, 1, 2]), *running("third", "rack-3", [0, 1, 2])]
    for at in range(2):
        claim, pod = running(f"pair-{at}", "rack-1", [at])
        pod["metadata"]["labels"]["muster.dev/gang"] = "pair"
        pod["metadata"]["annotations"] = {"muster.dev/gang-size": "2", **annotations}
        there += [claim, pod]

    found = in_pieces(run, tmp_path, [*COUNTED, *racks(3), *there], "--shape", f"1x4:{CLASS}", hardware=())

    moves = [(one["gang"], one["to"]) for one in found["moves"]]
    assert moves == ([] if annotations else [("ml/pair", ["rack-2", "rack-3"])])


@ON_SQLITE
def test_gangs_that_waited_are_tried_in_their_queues_by_what_they_asked_for(url: str, run: Run, tmp_path: Path) -> None:
    spec = claims.decode_spec(
        Reader({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": 2}}]}})
    )
    pair = PodShape(count=2, requests=(("cpu", "4"),), claims=(spec,))
    leading = gang_shapes.of_pods([pair, PodShape(count=1, requests=(("cpu", "1"),))])
    large = gang_shapes.of_pods([replace(pair, count=9)])
    assert leading is not None
    assert large is not None
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    queue = QueueName("q")
    shapes = [
        WaitingShape(queue, "ml", day, leading.text, 7_200),
        WaitingShape(queue, "ml", day - timedelta(days=1), leading.text, 3_600),
        WaitingShape(queue, "ml", day, large.text, 1_800),
        WaitingShape(queue, "", day, "", 900),
        WaitingShape(queue, "ml", day - timedelta(days=31), large.text, 10**6),
    ]

    async def fill() -> None:
        async with SqlLedger.open(url, CLUSTER) as ledger:
            await ledger.fence(1)
            await ledger.write_waiting(Waited(shapes=shapes), epoch=1, keep_from=day - timedelta(days=40))

    asyncio.run(fill())
    words = ("--waited", "--database", url, "--cluster", CLUSTER)
    found = in_pieces(run, tmp_path, COUNTED, *words)

    assert found["otherWaitedSeconds"] == 900
    assert [(one["shape"], one["starts"], one["waitedSeconds"], one["reason"]) for one in found["shapes"]] == [
        (f"2x2:{CLASS} cpu=4 + 1x0 cpu=1 in q", 2, 10_800, "DevicesBusy"),
        (f"9x2:{CLASS} cpu=4 in q", 0, 1_800, "NoFeasiblePlacement"),
    ]
    assert [[*one["usable"].values()] for one in found["free"]] == [[4, 4], [4, 4]]

    text = run(str(OFFLINE), str(tmp_path / "cluster.yaml"), *words)
    assert "GANG-HOURS" in text.stdout
    assert "gangs of other shapes, or of none, have waited for 0.2 gang-hours" in text.output


@ON_SQLITE
def test_books_that_know_of_nobody_who_waited_say_so(url: str, run: Run) -> None:
    result = run(str(OFFLINE), "--waited", "--database", url, "--cluster", CLUSTER)
    assert result.exit_code != 0
    assert "the books know of no gang with a shape that waited in the last 30 days" in str(result.exception)
