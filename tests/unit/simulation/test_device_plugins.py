"""Devices of device plugins in a simulation: they count against the quota of devices."""

from admission.api.values.reasons import DenyReason, HoldReason
from tests.unit.simulation.simulated import Objects, fates, job, node, objects, of, simulate, teams, use_of

PLUGIN = """
    apiVersion: v1
    kind: Node
    metadata: {name: old}
    status: {allocatable: {cpu: 8, memory: 8Gi, pods: 110, example.com/gpu: 4}}
    ---
    apiVersion: muster.dev/v1alpha1
    kind: Meter
    metadata: {name: gpus}
    spec:
      sources: [{deviceClasses: [gpu], count: {}}]
      extendedResources: [example.com/gpu]
    ---
    apiVersion: v1
    kind: Pod
    metadata: {name: old, labels: {muster.dev/queue: team}}
    spec:
      nodeName: old
      containers: [{name: main, image: train, resources: {limits: {example.com/gpu: 2}}}]
    status: {phase: Running}
    """


def plugged_job(name: str, count: int) -> Objects:
    return objects(f"""
        apiVersion: batch/v1
        kind: Job
        metadata: {{name: {name}}}
        spec:
          template:
            spec:
              restartPolicy: Never
              containers: [{{name: main, image: train, resources: {{limits: {{example.com/gpu: {count}}}}}}}]
        """)


def test_device_plugin_resources_draw_on_the_quota_of_devices() -> None:
    cluster_state = (
        teams(quota=5),
        node("one", 4),
        objects(PLUGIN),
        plugged_job("plugged", 2),
        job("devices"),
        job("more"),
    )
    outcome = simulate(*cluster_state)

    assert fates(outcome) == {
        "old": "Admitted",
        "plugged": "Admitted",
        "devices": "Admitted",
        "more": HoldReason.QUOTA_EXCEEDED,
    }
    assert {name: of(outcome, name).charges for name in ("old", "plugged", "devices")} == {
        "old": {"gpus": 2},
        "plugged": {"gpus": 2},
        "devices": {"gpus": 1},
    }
    assert [pod.node for pod in of(outcome, "plugged").plan] == ["old"]
    assert use_of(outcome) == 5


def test_device_plugin_resources_are_released_at_the_end_of_their_gang() -> None:
    outcome = simulate(teams(quota=2), objects(PLUGIN), plugged_job("next", 2), until_empty=True)

    assert fates(outcome) == {"old": "Admitted", "next": "Admitted"}


def test_more_of_a_device_plugin_than_the_queue_could_ever_have_is_denied() -> None:
    outcome = simulate(teams(quota=3), objects(PLUGIN), plugged_job("large", 4))

    assert fates(outcome) == {"old": "Admitted", "large": DenyReason.NEVER_FITS}
