"""Rows of Alibaba's GPU trace of 2023 become a cluster and jobs that the rest of Muster reads without a word."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from admission.api import traces
from admission.api.traces import Row
from admission.api.values.names import NodeName
from admission.conversion import openb
from admission.simulation import expand, lint

NODE = {"sn": "node-a", "cpu_milli": "96000", "memory_mib": "393216", "gpu": "2", "model": "G2"}
POD = {
    "name": "pod-a",
    "cpu_milli": "3152",
    "memory_mib": "5600",
    "num_gpu": "1",
    "gpu_milli": "460",
    "gpu_spec": "",
    "qos": "BE",
    "pod_phase": "Failed",
    "creation_time": "10",
    "deletion_time": "90",
    "scheduled_time": "30",
}


def rows(*cells: Mapping[str, str]) -> list[Row]:
    return [Row(line, one) for line, one in enumerate(cells, 2)]


def jobs(*cells: Mapping[str, str]) -> list[Any]:
    decoder = openb.Decoder()
    found = [openb.job(pod) for pod in decoder.pods(rows(*cells))]
    assert decoder.problems == []
    return found


async def test_a_node_list_is_a_cluster_that_lint_finds_no_fault_with() -> None:
    decoder = openb.Decoder()
    without = NODE | {"sn": "node-b", "gpu": "0", "model": "nan"}

    made = list(openb.cluster(decoder.nodes(rows(NODE, without))))

    assert decoder.problems == []
    kinds = ["DeviceClass", "Meter", "Node", "ResourceSlice", "Node", "Queue"]
    assert [one["kind"] for one in made] == kinds
    assert (await lint.lint(made)).remarks == ()
    snapshot = expand.expand(made).snapshot
    assert snapshot.nodes[NodeName("node-a")].allocatable == {"cpu": 96_000, "memory": 393_216 * 2**20, "pods": 1001}
    assert [device.name for device in snapshot.slices["node-a"].devices] == ["gpu-0", "gpu-1"]
    assert made[-1]["spec"]["quotas"] == [{"meter": "gpu-milli", "nominal": 2_000}]


def test_a_pod_is_a_job_from_its_creation_that_runs_for_as_long_as_it_did() -> None:
    (made,) = jobs(POD)
    trace = traces.decode([Row(1, made)])

    assert trace.problems == ()
    (job,) = trace.arrivals
    assert (job.name, job.queue, job.at.total_seconds(), job.runtime.total_seconds()) == ("pod-a", "openb", 10, 60)
    assert job.pod_requests.requests == {"pods": 1, "cpu": 3152, "memory": 5600 * 2**20}
    (alternative,) = job.pod_requests.claims[0].requests[0].alternatives
    assert (alternative.device_class, alternative.count) == ("gpu", 1)
    assert alternative.capacity == {"gpu_milli": Fraction(460)}


def test_a_pod_may_ask_for_whole_gpus_of_some_models_or_for_none() -> None:
    whole, without = jobs(
        POD | {"num_gpu": "8", "gpu_milli": "1000", "gpu_spec": "V100M16|V100M32"},
        POD | {"name": "pod-b", "num_gpu": "0", "gpu_milli": "0"},
    )

    exactly = whole["claims"][0]["devices"]["requests"][0]["exactly"]
    assert (exactly["count"], exactly["capacity"]) == (8, {"requests": {"gpu_milli": "1000"}})
    (selector,) = exactly["selectors"]
    assert selector["cel"]["expression"] == "device.attributes['gpu.example.com'].model in ['V100M16', 'V100M32']"
    assert "claims" not in without


def test_a_pod_that_was_never_scheduled_is_no_job() -> None:
    assert jobs(POD | {"scheduled_time": ""}) == [None]


def test_a_pod_that_ended_in_the_second_in_which_it_started_runs_a_second() -> None:
    (made,) = jobs(POD | {"deletion_time": "30"})

    assert made["runtime"] == 1


WRONG_NODES: dict[str, tuple[dict[str, str], str]] = {
    "no name": ({"sn": ""}, "sn: is required"),
    "a name that no node has": ({"sn": "Node A"}, "sn: 'Node A' is not a DNS subdomain"),
    "words for a number": ({"cpu_milli": "many"}, "cpu_milli: 'many' is no whole number from 0 to"),
    "half a MiB": ({"memory_mib": "0.5"}, "memory_mib: '0.5' is no whole number"),
    "more GPUs than a slice has devices": ({"gpu": "129"}, "gpu: '129' is no whole number from 0 to 128"),
    "a number of a thousand digits": ({"gpu": "9" * 1000}, "is no whole number from 0 to 128"),
    "digits of another script": ({"gpu": "²"}, "gpu: '²' is no whole number"),
    "GPUs of no model": ({"model": ""}, "model: is required of a node with GPUs"),
    "a model that ends a text": ({"model": "a'b"}, 'model: "a\'b" is not the name of a model'),
}
WRONG_PODS: dict[str, tuple[dict[str, str], str]] = {
    "a share of nothing": ({"gpu_milli": "0"}, "gpu_milli: '0' is no whole number from 1 to 1000"),
    "more than a GPU": ({"gpu_milli": "1001"}, "gpu_milli: '1001' is no whole number from 1 to 1000"),
    "a part of each of several": ({"num_gpu": "2"}, "gpu_milli: is 460 of each of 2 GPUs"),
    "models with nothing between": ({"gpu_spec": "A||B"}, "gpu_spec: 'A||B' is not at most 32 names"),
    "too many models": ({"gpu_spec": "|".join(map(str, range(33)))}, "is not at most 32 names of models"),
    "an end before the start": ({"deletion_time": "29"}, "deletion_time: 29 is before scheduled_time, 30"),
    "a start before the creation": (
        {"creation_time": "31"},
        "scheduled_time: 30 is before creation_time, 31; correct it, or take the row out",
    ),
    "no end": ({"deletion_time": ""}, "deletion_time: '' is no whole number"),
    "a time below nothing": ({"creation_time": "-1"}, "creation_time: '-1' is no whole number"),
}


@pytest.mark.parametrize(("change", "message"), WRONG_NODES.values(), ids=WRONG_NODES)
def test_a_problem_of_a_node_is_told_with_line_and_column(change: dict[str, str], message: str) -> None:
    decoder = openb.Decoder()

    assert list(decoder.nodes(rows(NODE, NODE | {"sn": "node-b"} | change))) == list(openb.Decoder().nodes(rows(NODE)))

    ((line, problem),) = decoder.problems
    assert line == 3
    assert message in str(problem)


@pytest.mark.parametrize(("change", "message"), WRONG_PODS.values(), ids=WRONG_PODS)
def test_a_problem_of_a_pod_is_told_with_line_and_column(change: dict[str, str], message: str) -> None:
    decoder = openb.Decoder()

    assert list(decoder.pods(rows(POD | change))) == []

    assert any(line == 2 and message in str(problem) for line, problem in decoder.problems), decoder.problems


def test_two_rows_of_one_name_are_told() -> None:
    decoder = openb.Decoder()

    assert len(list(decoder.pods(rows(POD, POD)))) == 1
    assert [(line, str(problem)) for line, problem in decoder.problems] == [
        (3, "name: 'pod-a' is the name in line 2, too")
    ]
