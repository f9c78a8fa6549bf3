"""Objects with one value of another type than its field has, the field, and what is told of it.

The unit tests judge them by our list; tests/e2e/test_validation.py sends them to a real API server.
"""

from typing import Any

from tests.unit.api import natives
from tests.unit.api.cases import Json, an_object

POD = "spec.template.spec"
MAIN = f"{POD}.containers[0]"


def job(**spec: Any) -> Json:
    return natives.job(pod=spec)


def container(**fields: Any) -> Json:
    return job(containers=[{"name": "main", "image": "train", **fields}])


def named(**metadata: Any) -> Json:
    return {**natives.job(), "metadata": {"name": "good", **metadata}}


def into(field: str, kind: str, given: str, mend: str) -> str:
    return f"json: cannot unmarshal {given} into Go struct field {field} of type {kind}; {mend}"


IN_MAIN = "spec.template.spec.containers"
QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; true is none;"
    " 500m and 4Gi are"
)

NATIVE: dict[str, tuple[Json, str, str]] = {
    "a number in the environment": (
        container(env=[{"name": "RANKS", "value": 8}]),
        f"{MAIN}.env[0].value",
        into(f"EnvVar.{IN_MAIN}.env.value", "string", "number", "write it in quotes"),
    ),
    "a flag in the environment": (
        container(env=[{"name": "DEBUG", "value": True}]),
        f"{MAIN}.env[0].value",
        into(f"EnvVar.{IN_MAIN}.env.value", "string", "bool", "write it in quotes"),
    ),
    "a number among words": (
        container(command=["sleep", 3600]),
        f"{MAIN}.command[1]",
        into(f"Container.{IN_MAIN}.command", "string", "number", "write it in quotes"),
    ),
    "a word in place of words": (
        container(command="sleep"),
        f"{MAIN}.command",
        into(f"Container.{IN_MAIN}.command", "[]string", "string", "a list is expected"),
    ),
    "an environment as a mapping": (
        container(env={"RANKS": "8"}),
        f"{MAIN}.env",
        into(f"Container.{IN_MAIN}.env", "[]v1.EnvVar", "object", "a list is expected"),
    ),
    "a variable as in a shell": (
        container(env=["RANKS=8"]),
        f"{MAIN}.env[0]",
        into(f"Container.{IN_MAIN}.env", "v1.EnvVar", "string", "an object is expected"),
    ),
    "a claim by its name alone": (
        container(resources={"claims": ["gpus"]}),
        f"{MAIN}.resources.claims[0]",
        into(f"ResourceRequirements.{IN_MAIN}.resources.claims", "v1.ResourceClaim", "string", "an object is expected"),
    ),
    "limits as a list": (
        container(resources={"limits": []}),
        f"{MAIN}.resources.limits",
        into(
            f"ResourceRequirements.{IN_MAIN}.resources.limits",
            "map[string]resource.Quantity",
            "array",
            "an object is expected",
        ),
    ),
    "a flag as an amount": (
        container(resources={"limits": {"cpu": True}}),
        f"{MAIN}.resources.limits[cpu]",
        QUANTITY,
    ),
    "a port that is a fraction": (
        container(livenessProbe={"httpGet": {"port": 8.5}}),
        f"{MAIN}.livenessProbe.httpGet.port",
        into(
            f"HTTPGetAction.{IN_MAIN}.livenessProbe.httpGet.port", "int32", "number 8.5", "an integer is expected"
        ),
    ),
    "a user in quotes": (
        container(securityContext={"runAsUser": "1000"}),
        f"{MAIN}.securityContext.runAsUser",
        into(f"SecurityContext.{IN_MAIN}.securityContext.runAsUser", "int64", "string", "write it without quotes"),
    ),
    "a count in words": (
        natives.job(parallelism="two"),
        "spec.parallelism",
        into("JobSpec.spec.parallelism", "int32", "string", "an integer is expected"),
    ),
    "a count that is true": (
        natives.job(parallelism=True),
        "spec.parallelism",
        into("JobSpec.spec.parallelism", "int32", "bool", "an integer is expected"),
    ),
    "a count of more than 32 bits": (
        natives.job(parallelism=2**31),
        "spec.parallelism",
        into(
            "JobSpec.spec.parallelism",
            "int32",
            "number 2147483648",
            "an integer from -2147483648 to 2147483647 is expected",
        ),
    ),
    "a flag in quotes": (
        natives.job(suspend="true"),
        "spec.suspend",
        into("JobSpec.spec.suspend", "bool", "string", "true or false is expected, without quotes"),
    ),
    "a spec that is a list": (
        {**natives.job(), "spec": []},
        "spec",
        into("Job.spec", "v1.JobSpec", "array", "an object is expected"),
    ),
    "a label that is a number": (
        named(labels={"run": 7}),
        "metadata.labels[run]",
        into("ObjectMeta.metadata.labels", "string", "number", "write it in quotes"),
    ),
    "a node selector that is true": (
        job(nodeSelector={"gpu": True}),
        f"{POD}.nodeSelector[gpu]",
        into("PodSpec.spec.template.spec.nodeSelector", "string", "bool", "write it in quotes"),
    ),
    "a time that is a date": (
        named(creationTimestamp="2026-01-31"),
        "metadata.creationTimestamp",
        'parsing time "2026-01-31" as "2006-01-02T15:04:05Z07:00"; a time is written as 2026-01-31T12:00:00Z',
    ),
    "a count of devices in quotes": (
        an_object(
            "ResourceClaim",
            {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": "2"}}]}},
        ),
        "spec.devices.requests[0].exactly.count",
        into(
            "ExactDeviceRequest.spec.devices.requests.exactly.count", "int64", "string", "write it without quotes"
        ),
    ),
}  # fmt: skip
"""Of kinds of Kubernetes; nothing else is wrong with any of them."""

GOOD: dict[str, Json] = {
    "nothing in many places": job(
        nodeSelector={"gpu": None}, containers=[{"name": "main", "image": "train", "command": ["a", None], "env": None}]
    ),
    "a port by its name": container(
        ports=[{"name": "http", "containerPort": 80}], livenessProbe={"httpGet": {"port": "http"}}
    ),
    "amounts as numbers": container(resources={"limits": {"cpu": 0.5, "memory": 10}}),
    "a time with an offset": named(creationTimestamp="2026-01-31T12:00:00.5+01:00"),
    "parameters of a driver": an_object(
        "ResourceClaim",
        {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}],
                "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"count": "2", "on": [1, True]}}}],
            }
        },
    ),
}
"""Values that are taken in these places."""
