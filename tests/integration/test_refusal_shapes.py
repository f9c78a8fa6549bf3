"""The shape of a refused pod is in the status of its Gang, for the next process to read."""

import os
import subprocess
import sys

PROGRAM = """
from admission.api.kubernetes import pods
from admission.lifecycle import refusals

term = {"topologyKey": "zone", "namespaces": ["a", "b", "c", "d", "e"], "labelSelector": {"matchLabels": {"x": "1"}}}
required = "requiredDuringSchedulingIgnoredDuringExecution"
pod = {
    "metadata": {"name": "p", "namespace": "team"},
    "spec": {
        "affinity": {"podAntiAffinity": {required: [term]}},
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}}}],
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "v", "rbd": {"monitors": ["m1", "m2", "m3"], "image": "i"}}],
    },
}
print(refusals.shape(pods.decode(pod)))
"""


def test_the_shape_of_a_pod_is_the_same_in_every_process() -> None:
    shapes = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(4)
    }

    assert len(shapes) == 1
