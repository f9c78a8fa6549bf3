"""Volcano's queues as Muster's: what is deserved, guaranteed and the most, and every field converted or told."""

from typing import Any

import pytest
import yaml

from admission.conversion.findings import Level
from admission.conversion.queues import volcano
from admission.simulation import expand, lint, offline
from tests.unit.conversion.test_kueue import JOBS, a_job

VOLCANO = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: research}
spec: {deserved: {deviceclass/gpu.example.com: 3, cpu: 8}, capability: {deviceclass/gpu.example.com: 3}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: vision}
spec:
  parent: research
  weight: 2
  reclaimable: true
  dequeueStrategy: fifo
  deserved: {deviceclass/gpu.example.com: 2, cpu: 4500m}
  capability: {deviceclass/gpu.example.com: 3}
  guarantee: {resource: {deviceclass/gpu.example.com: 1}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default}
spec:
  parent: research
  deserved: {deviceclass/gpu.example.com: 1, memory.deviceclass/gpu.example.com: 16Gi}
status: {state: Open}
"""
MUSTER = """
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: root}
spec: {}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: research}
spec:
  parent: root
  quotas: [{meter: gpu.example.com, nominal: '0', borrowingLimit: '0'}, {meter: cpu, nominal: '3500'}]
  preemption: {reclaim: Any}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: default}
spec:
  parent: research
  namespaceSelector: {}
  unmeteredClasses: Allow
  aliases: [default]
  default: true
  quotas: [{meter: gpu.example.com, nominal: '1'}, {meter: gpu.example.com-memory, nominal: 16Gi}]
  preemption: {reclaim: Any}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: vision}
spec:
  parent: research
  namespaceSelector: {}
  unmeteredClasses: Allow
  aliases: [vision]
  quotas:
  - {meter: gpu.example.com, nominal: '2', borrowingLimit: '1', lendingLimit: '1'}
  - {meter: cpu, nominal: '4500'}
  queueingStrategy: StrictFIFO
  fairSharing: {weight: '2'}
  preemption: {reclaim: Any}
"""


def objects(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def test_queues_of_volcano_are_queues_with_what_they_deserve_guarantee_and_may_have() -> None:
    made = volcano.convert(objects(VOLCANO)).objects

    assert [one for one in made if one["kind"] == "Queue"] == objects(MUSTER)
    assert {one["metadata"]["name"]: one["spec"].get("sources", one["spec"].get("resources")) for one in made[:3]} == {
        "gpu.example.com": [{"deviceClasses": ["gpu.example.com"], "count": {}}],
        "cpu": [{"name": "cpu", "per": "1m"}],
        "gpu.example.com-memory": [{"deviceClasses": ["gpu.example.com"], "capacity": {"name": "memory"}}],
    }


def a_job_of_volcano(name: str, queue: str, gpus: int) -> list[Any]:
    template, job = a_job(name, "team", gpus)
    del job["metadata"]["labels"]
    job["spec"]["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": queue}}
    return [template, job]


@pytest.mark.parametrize(
    ("asked", "decided"),
    [
        ([("vision", 3)], ["Admitted"]),
        ([("vision", 3), ("default", 1)], ["Held", "Admitted"]),
        ([("vision", 4)], ["Denied"]),
        ([("default", 2)], ["Admitted"]),
        ([("default", 3)], ["Denied"]),
    ],
    ids=["idle quota is lent", "the owner goes first", "over its capability", "lent, too", "what is guaranteed is not"],
)
async def test_what_is_converted_passes_lint_and_lets_in_what_volcano_would(asked: Any, decided: list[str]) -> None:
    text = VOLCANO.replace(", memory.deviceclass/gpu.example.com: 16Gi", "")
    made = [*volcano.convert(objects(text)).objects]
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}]
    jobs = [one for at, (queue, gpus) in enumerate(asked) for one in a_job_of_volcano(f"job-{at}", queue, gpus)]

    linted = await lint.lint([*namespaces, *made])
    outcome = await offline.simulate(expand.expand([*objects(JOBS), *namespaces, *made, *jobs]))

    assert linted.remarks == ()
    verdicts = {gang.name.split("/")[-1]: str(gang.verdict) for gang in outcome.gangs}
    assert [verdicts[f"job-{at}"] for at in range(len(asked))] == decided


async def test_devices_that_no_queue_speaks_of_are_free() -> None:
    made = volcano.convert([a_queue("vision", deserved={"cpu": 2})]).objects
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    job = a_job_of_volcano("train", "vision", 3)

    outcome = await offline.simulate(expand.expand([*objects(JOBS), namespace, *made, *job]))

    assert [str(gang.verdict) for gang in outcome.gangs] == ["Admitted"]


FIELDS: dict[str, tuple[Any, str]] = {
    "affinity": ({"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["a"]}}, "nodeAffinity"),
    "extendClusters": ([{"name": "east"}], "scope: Global"),
    "priority": (10, "rank by their shares"),
    "reclaimable": (False, "preemption.reclaim"),
    "type": ("elastic", "no counterpart"),
    "somethingNew": (1, "no counterpart"),
    "capability": ({"cpu": "many"}, "cpu: "),
    "guarantee": ({"percentage": 5}, "no counterpart"),
}


@pytest.mark.parametrize(("field", "value", "told"), [(name, *rest) for name, rest in FIELDS.items()], ids=FIELDS)
def test_each_field_without_a_counterpart_is_told_by_name(field: str, value: Any, told: str) -> None:
    (findings,) = volcano.convert([a_queue(**{field: value})]).findings

    left = {one.field: one.message for one in findings.found if one.level is Level.LEFT}
    assert [told in message for name, message in left.items() if name.startswith(f"spec.{field}")] == [True]


def a_queue(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def test_a_closed_queue_admits_nothing_more() -> None:
    converted = volcano.convert([a_queue() | {"status": {"state": "Closed"}}])

    assert converted.objects[-1]["spec"]["stopPolicy"] == "Hold"


CHECKS = {
    "capability alone is owned": ({"capability": {"cpu": 2}}, "the Queue owns its capability"),
    "the rest of the cluster is nobody's": ({"deserved": {"cpu": 2}}, "give Queue root a quota"),
    "who takes quota back is a matter of settings": ({"deserved": {"cpu": 2}}, "action reclaim"),
}


@pytest.mark.parametrize(("spec", "told"), CHECKS.values(), ids=CHECKS)
def test_what_rests_on_an_assumption_is_told(spec: Any, told: str) -> None:
    (findings,) = volcano.convert([a_queue(**spec)]).findings

    assert [one.level for one in findings.found if told in one.message] == [Level.CHECK]


def test_queues_whose_parents_form_a_circle_are_converted_all_the_same() -> None:
    circle = [a_queue("a", parent="b", deserved={"cpu": 1}), a_queue("b", parent="a", deserved={"cpu": 1})]

    assert {one["metadata"]["name"] for one in volcano.convert(circle).objects} == {"cpu", "a", "b"}


def test_a_guarantee_above_and_a_capability_below_what_is_deserved_are_told() -> None:
    above = a_queue("above", deserved={"cpu": 2}, capability={"cpu": 1}, guarantee={"resource": {"cpu": 1}})

    found, _ = volcano.convert([above, a_queue("below", parent="above", deserved={"cpu": 2})]).findings

    left = {one.field for one in found.found if one.level is Level.LEFT}
    assert left == {"spec.capability", "spec.guarantee.resource"}
