"""A queue's preferences among kinds of devices, from manifests to plan, charge and reason."""

from typing import Any

import pytest

from admission.api.values.reasons import HoldReason
from admission.simulation.offline import Outcome, Verdict
from tests.unit.simulation.simulated import Objects, fates, job, of, simulate, use_of

MODEL = "device.attributes['gpu.example.com'].model == '{}'"
FENCE: Objects = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "muster-fence-gpu.example.com"},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com"},
            "taint": {"key": "muster.dev/fence", "value": "Muster", "effect": "NoSchedule"},
        },
    }
]


def a_kind(model: str, *classes: str) -> dict[str, Any]:
    return {"name": model, "deviceClasses": [*(classes or ("gpu",))], "selector": MODEL.format(model)}


def a_node(name: str, *models: str) -> Objects:
    devices = [{"name": f"gpu-{at}", "attributes": {"model": {"string": model}}} for at, model in enumerate(models)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec},
    ]


def a_queue(name: str = "team", *, nominal: dict[str, int] | None = None, **spec: Any) -> Objects:
    quotas = [{"meter": meter, "nominal": amount} for meter, amount in (nominal or {}).items()]
    body = {"namespaceSelector": {}, "default": name == "team", "quotas": quotas, **spec}
    return [{"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": body}]


def prefers(*models: str, **more: Any) -> dict[str, Any]:
    return {"preferences": {"kinds": [*map(a_kind, models)], **more}}


def meters(*models: str) -> Objects:
    """A class of all devices, and a meter for each model."""
    sources = {model: [{"deviceClasses": ["gpu"], "selector": MODEL.format(model), "count": {}}] for model in models}
    return [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        *(
            {"apiVersion": "muster.dev/v1alpha1", "kind": "Meter", "metadata": {"name": model}, "spec": {"sources": s}}
            for model, s in sources.items()
        ),
    ]


def asking(name: str, requests: list[dict[str, Any]], **options: Any) -> Objects:
    template, made = job(name, **options)
    template["spec"]["spec"]["devices"]["requests"] = requests
    return [template, made]


def exactly(model: str = "", *, name: str = "gpu", count: int = 1, **more: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": MODEL.format(model)}}] if model else []
    return {"name": name, "exactly": {"deviceClassName": "gpu", "count": count, "selectors": selectors, **more}}


FOUR = {"a100": 4, "h100": 4}
APART = [*a_node("a", *["a100"] * 4), *a_node("h", *["h100"] * 4)]
MIXED = a_node("m", "h100", "a100", "h100", "a100")
ONE_OF_EACH = [*a_node("a", "a100"), *a_node("m", "a100", "h100"), *a_node("h", "h100")]

STARTS = {
    "the first kind": (APART, {}, [exactly(count=2)], {"a100": 2}),
    "the next, where the first has too few devices": (
        [*a_node("a", "a100"), *a_node("h", *["h100"] * 4)],
        {},
        [exactly(count=2)],
        {"h100": 2},
    ),
    "the next, where the first is over quota": (APART, {"a100": 1, "h100": 4}, [exactly(count=2)], {"h100": 2}),
    "its own kind, where it leaves nothing open": (APART, {}, [exactly("h100", count=2)], {"h100": 2}),
    "two kinds, where each request names one": (
        a_node("m", "a100", "h100"),
        {},
        [exactly("h100", name="big"), exactly("a100", name="small")],
        {"a100": 1, "h100": 1},
    ),
    "the kind of the alternatives that is preferred, not the first alternative": (
        APART,
        {},
        [
            {
                "name": "gpu",
                "firstAvailable": [
                    {
                        "name": model,
                        "deviceClassName": "gpu",
                        "count": 2,
                        "selectors": [{"cel": {"expression": MODEL.format(model)}}],
                    }
                    for model in ("h100", "a100")
                ],
            }
        ],
        {"a100": 2},
    ),
    "all of one node of the first kind": (APART, {}, [exactly(allocationMode="All") | {}], {"a100": 4}),
}


@pytest.mark.parametrize(("nodes", "nominal", "requests", "charges"), STARTS.values(), ids=STARTS)
def test_a_gang_gets(nodes: Objects, nominal: dict[str, int], requests: Any, charges: dict[str, int]) -> None:
    for request in requests:
        if request.get("exactly", {}).get("allocationMode"):
            del request["exactly"]["count"]
    queue = a_queue(nominal=nominal or FOUR, **prefers("a100", "h100"))

    gang = of(simulate(queue, meters("a100", "h100"), nodes, asking("train", requests)), "train")

    assert (gang.verdict, gang.message or "", gang.charges) == (Verdict.ADMITTED, gang.message or "", charges)


def test_without_preferences_any_devices_will_do() -> None:
    outcome = simulate(a_queue(nominal=FOUR), meters("a100", "h100"), a_node("m", "h100", "a100"), job("train", gpus=2))

    assert of(outcome, "train").charges == {"a100": 1, "h100": 1}


def test_all_pods_of_a_gang_get_one_kind() -> None:
    queue = a_queue(nominal=FOUR, **prefers("a100", "h100"))
    nodes = [*a_node("a", "a100"), *a_node("h", "h100", "h100"), *a_node("z", "a100")]

    outcome = simulate(queue, meters("a100", "h100"), nodes, job("two", pods=2), job("three", pods=3))

    assert of(outcome, "two").charges == {"a100": 2}
    assert of(outcome, "three").reason == HoldReason.QUOTA_EXCEEDED


def test_a_hold_has_the_reason_of_each_kind() -> None:
    queue = a_queue(nominal={"a100": 1, "h100": 4}, **prefers("a100", "h100"))

    gang = of(
        simulate(queue, meters("a100", "h100"), [*a_node("a", *["a100"] * 4), *a_node("h", "h100")], job("j", gpus=2)),
        "j",
    )

    assert gang.reason == HoldReason.QUOTA_EXCEEDED
    assert gang.message.startswith("kind a100: queue team has 1 a100 left (nominal 1, used 0), the gang needs 2; ")
    assert "; kind h100: " in gang.message
    assert {name: gang.details[name] for name in ("kind", "kinds", "meter")} == {
        "kind": "a100",
        "kinds": ["a100", "h100"],
        "meter": "a100",
    }


# Where a node has devices of several kinds.


def kinds_on(outcome: Outcome, name: str) -> list[str]:
    return sorted(str(one.device) for pod in of(outcome, name).plan for claim in pod.claims for one in claim.devices)


def test_where_muster_picks_it_picks_the_kind_on_a_node_that_has_several() -> None:
    queue = a_queue(nominal=FOUR, **prefers("a100", "h100"))

    outcome = simulate(queue, meters("a100", "h100"), MIXED, FENCE, job("one", gpus=2), job("two", gpus=2))

    assert [of(outcome, name).charges for name in ("one", "two")] == [{"a100": 2}, {"h100": 2}]
    assert kinds_on(outcome, "one") == [f"gpu.example.com/m/gpu-{at}" for at in (1, 3)]


def test_where_kube_scheduler_picks_a_pod_is_kept_off_nodes_that_have_several_kinds() -> None:
    queue = a_queue(nominal=FOUR, **prefers("h100", "a100"))

    outcome = simulate(queue, meters("a100", "h100"), ONE_OF_EACH, job("first"), job("second"), job("third"))

    assert [of(outcome, name).charges for name in ("first", "second")] == [{"h100": 1}, {"a100": 1}]
    assert of(outcome, "third").reason == HoldReason.DEVICES_BUSY


def test_a_claim_that_names_its_kind_goes_to_nodes_that_have_several() -> None:
    queue = a_queue(nominal=FOUR, **prefers("h100", "a100"))

    outcome = simulate(queue, meters("a100", "h100"), MIXED, asking("train", [exactly("a100", count=2)]))

    assert of(outcome, "train").charges == {"a100": 2}


def test_where_only_such_nodes_are_left_the_hold_says_so() -> None:
    queue = a_queue(nominal=FOUR, **prefers("a100", "h100"))

    gang = of(simulate(queue, meters("a100", "h100"), MIXED, job("train")), "train")

    assert gang.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert "m has devices of another kind as well, which kube-scheduler might give it" in gang.message


def test_with_count_preferences_do_not_count() -> None:
    queue = a_queue(nominal={"all": 4}, placement="Count", **prefers("a100", "h100"))
    every = meters("a100", "h100", "all")
    del every[-1]["spec"]["sources"][0]["selector"]

    assert fates(simulate(queue, [every[0], every[-1]], MIXED, job("train"))) == {"train": "Admitted"}


# Beside other rules.


def test_devices_that_no_kind_has_are_not_given() -> None:
    queue = a_queue(nominal=FOUR, **prefers("a100", "h100"))
    nodes = [*a_node("v", *["v100"] * 4), *a_node("a", "a100")]

    assert fates(simulate(queue, meters("a100", "h100"), nodes, job("train", gpus=2))) == {
        "train": HoldReason.NO_FEASIBLE_PLACEMENT
    }


def test_classes_that_no_kind_names_are_left_alone() -> None:
    queue = a_queue(nominal=FOUR, preferences={"kinds": [a_kind("a100", "other")]})

    assert fates(simulate(queue, meters("a100", "h100"), APART, job("train", gpus=2))) == {"train": "Admitted"}


def test_a_lone_kind_is_no_part_of_the_message() -> None:
    queue = a_queue(nominal=FOUR, **prefers("a100", "h100"))

    gang = of(
        simulate(queue, meters("a100", "h100"), APART, asking("train", [exactly("h100", count=3)], pods=2)), "train"
    )

    assert gang.message.startswith("queue team has 4 h100 left")


def test_what_pods_request_of_nodes_is_no_loan_of_a_kind() -> None:
    """The queue borrows CPU for each kind alike, so the kind without a loan of devices is taken."""
    cpu: Objects = [
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "Meter",
            "metadata": {"name": "cpu"},
            "spec": {"resources": [{"name": "cpu"}]},
        }
    ]
    root = a_queue("root", nominal={"cpu": 8, "a100": 4})
    queue = a_queue(
        nominal={"a100": 1, "h100": 2, "cpu": 0}, parent="root", **prefers("a100", "h100", whenCanBorrow="TryNext")
    )
    template, made = job("train", gpus=2)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}

    outcome = simulate(root, queue, meters("a100", "h100"), cpu, APART, [template, made])

    assert of(outcome, "train").charges == {"cpu": 1, "h100": 2}
    assert use_of(outcome, meter="h100") == 2


def either(*wanted: tuple[str, int]) -> list[dict[str, Any]]:
    """Return a request of which devices of one model, so many, are enough."""
    options = [exactly(model, count=count)["exactly"] | {"name": model} for model, count in wanted]
    return [{"name": "gpu", "firstAvailable": options}]


LACKS = {
    "devices of each": (
        FOUR,
        [exactly("a100", count=3)],
        (
            "pod x-0 needs 2 devices of class gpu on one node (request gpu/a100 of claim x-0-gpu, none of its 2"
            " alternatives fits: gpu/h100 needs 5 devices of class gpu, of which h has most free, 4 of 4); the most"
            " that any node has free is 1 (a, of 4 that match)"
        ),
        [("a100", 2), ("h100", 5)],
    ),
    "quota of each": (
        {"a100": 1, "h100": 3},
        [],
        (
            "with gpu/a100: queue team has 1 a100 left (nominal 1, used 0), the gang needs 2; the queue can never have"
            " more than 1; with gpu/h100: queue team has 3 h100 left (nominal 3, used 0), the gang needs 4; the queue"
            " can never have more than 3"
        ),
        [("a100", 2), ("h100", 4)],
    ),
    "devices of one, quota of the other": (
        {"a100": 4, "h100": 3},
        [exactly("a100", count=3)],
        (
            "with gpu/a100: pod x-0 needs 2 devices of class gpu on one node (request gpu/a100 of claim x-0-gpu); the"
            " most that any node has free is 1 (a, of 4 that match); 3 devices that would do are in use by claim"
            " default/first-0-gpu of gang default/first; with gpu/h100: queue team has 3 h100 left (nominal 3, used"
            " 0), the gang needs 4; the queue can never have more than 3"
        ),
        [("a100", 2), ("h100", 4)],
    ),
    "quota of many": (
        {"a100": 1, "h100": 1},
        [],
        "3 more alternatives fit neither",
        [("a100", 2), ("h100", 2), ("a100", 3), ("h100", 3), ("a100", 4), ("h100", 4), ("h100", 5)],
    ),
    "devices of many": (
        FOUR,
        [],
        "; 1 more lacks devices as well); the most",
        [(model, count) for count in (5, 6, 7) for model in FOUR][:5],
    ),
}


@pytest.mark.parametrize(("nominal", "first", "message", "wanted"), LACKS.values(), ids=LACKS)
def test_a_hold_says_what_each_alternative_lacks(
    nominal: dict[str, int], first: list[dict[str, Any]], message: str, wanted: list[tuple[str, int]]
) -> None:
    alternatives = either(*wanted)
    for at, one in enumerate(alternatives[0]["firstAvailable"]):
        one["name"] = one["name"] if len(wanted) == 2 else f"{one['name']}-{at}"
    jobs = [*(asking("first", first) if first else []), *asking("x", alternatives)]

    outcome = of(simulate(meters("a100", "h100"), a_queue(nominal=nominal), APART, jobs), "x")

    assert message in outcome.message
