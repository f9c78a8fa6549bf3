"""`muster capacity`: how many gangs of a shape start, what stops the next one, and at whose cost."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.testing import CliRunner, Result

from admission import cli
from admission.cli.capacity import copies
from tests.builders import CLASS

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


def in_pieces(run: Run, folder: Path, bodies: list[dict[str, Any]], *words: str) -> dict[str, Any]:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    result = run(str(OFFLINE), str(file), "-n", "ml", "--format", "json", "--pieces", "--queue", "q", *words)
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
