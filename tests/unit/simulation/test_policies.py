"""`muster simulate` with ClaimPolicies: claims and templates are stored as the webhook would have them."""

from typing import Any

from admission.api.values.reasons import DenyReason
from admission.simulation import expand as simulation_expand
from admission.simulation.claim_defaults import Act
from tests.unit.simulation.simulated import expand, fates, job, node, simulate, teams

Json = dict[str, Any]


def policy(name: str = "p", **spec: Any) -> list[Json]:
    return [{"apiVersion": "muster.dev/v1alpha1", "kind": "ClaimPolicy", "metadata": {"name": name}, "spec": spec}]


def called(template: list[Json], device_class: str) -> list[Json]:
    """Let a Job's template ask for devices by another name."""
    template[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = device_class
    return template


ALIAS = {"deviceClasses": ["h100"], "deviceClassName": "gpu"}


def test_templates_get_their_defaults() -> None:
    found = (teams(), node("a", 2), called(job("train"), "h100"))

    assert fates(simulate(*found)) == {"train": DenyReason.UNMETERED_CLASS}
    assert fates(simulate(*found, policy(defaults=[ALIAS]))) == {"train": "Admitted"}


def test_an_existing_workload_of_the_input_gets_no_defaults() -> None:
    found = called(job("train"), "h100")
    found[0]["metadata"]["uid"] = "u-1"

    assert fates(simulate(teams(), node("a", 2), found, policy(defaults=[ALIAS]))) == {
        "train": DenyReason.UNMETERED_CLASS
    }


def test_v1beta1_is_read_and_gets_its_defaults() -> None:
    request = {"name": "gpu", "deviceClassName": "h100"}
    claim = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "old"},
        "spec": {"devices": {"requests": [request]}},
    }
    template = claim | {"kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}

    snapshot = expand([claim, template], policy(defaults=[{**ALIAS, "count": 3}])).snapshot

    for spec in (snapshot.claims["default/old"].spec, snapshot.templates["default/old"].spec):
        (asked,) = spec.requests[0].alternatives
        assert (asked.device_class, asked.count) == ("gpu", 3)


def test_a_default_condition_that_fails_is_reported() -> None:
    cluster_state = expand(job("train"), policy(defaults=[{"when": "claim.metadata.labels['x'] == 'y'", "count": 1}]))

    (effect,) = cluster_state.effects
    assert (effect.source, effect.act) == ("ResourceClaimTemplate default/train", Act.WARN)
    assert effect.message.startswith("ClaimPolicy p: request gpu gets nothing from spec.defaults[0]")


def test_defaults_denials_warnings_and_audit_notes_of_policies_are_reported() -> None:
    rule = {"cel": "request.exactly.count <= 1", "message": "one is enough"}
    rules = [rule, {**rule, "action": "Warn"}, {**rule, "action": "Audit"}, {"cel": "user.username == 'x'", **_NO}]

    cluster_state = expand(job("train", gpus=2), policy(defaults=[{"labels": {"cost": "r-17"}}], rules=rules))

    assert [(effect.act, effect.message) for effect in cluster_state.effects] == [
        (Act.DEFAULT, 'metadata.labels: {"cost": "r-17"}'),
        (Act.DENY, "PolicyViolation: ClaimPolicy p: request gpu: one is enough"),
        (Act.WARN, "ClaimPolicy p: request gpu: one is enough"),
        (Act.AUDIT, "ClaimPolicy p: requests gpu: one is enough"),
        (Act.AUDIT, "ClaimPolicy p: requests gpu: one is enough"),
    ]
    assert [effect.source for effect in cluster_state.effects[3:]] == [
        "ResourceClaimTemplate default/train",
        "Job default/train",
    ]


def test_an_audit_note_about_a_pod_is_reported() -> None:
    rule = {"cel": "pod.metadata.name == 'x'", "message": "another name", "action": "Audit"}

    cluster_state = expand(job("train"), policy(rules=[rule]))

    told = {(effect.source, effect.act, effect.message) for effect in cluster_state.effects}
    assert ("Job default/train", Act.AUDIT, "ClaimPolicy p: requests gpu: another name") in told


_NO = {"message": "nobody knows who asks"}


def test_a_claim_rule_that_is_broken_denies_the_gang() -> None:
    rule = {"cel": "request.exactly.count <= 1", "message": "one is enough"}
    found = (teams(), node("a", 2), job("train", gpus=2))

    assert fates(simulate(*found, policy(rules=[rule]))) == {"train": DenyReason.POLICY_VIOLATION}
    assert fates(simulate(*found, policy(rules=[{**rule, "action": "Audit"}]))) == {"train": "Admitted"}


def test_a_policy_that_cannot_be_read_is_bad_input() -> None:
    (problem,) = simulation_expand.expand(policy(defaults=[{}])).problems

    assert str(problem[1]).startswith("ClaimPolicy p: spec.defaults[0]: gives nothing; write at least one of")


def alike(found: list[Json], **pod: Json) -> list[Json]:
    """Return the Job of a gang without its template; pod: what is changed of its pods."""
    (made,) = [one for one in found if one["kind"] == "Job"]
    template = made["spec"]["template"]
    template["spec"].pop("resourceClaims", None)
    for container in template["spec"]["containers"]:
        container["resources"] = pod.get("resources", {})
    template["metadata"] = {**template.get("metadata", {}), "annotations": pod.get("annotations", {})}
    return [made]


def test_templates_of_policies_are_there_for_pods_that_say_so() -> None:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}]}}
    found = (teams(), node("a", 2), alike(job("train"), annotations={"muster.dev/claims": "gpu=one"}))

    assert fates(simulate(*found)) == {"train": "WaitingForClaims"}
    assert fates(simulate(*found, policy(templates=[{"name": "one", "spec": spec}]))) == {"train": "Admitted"}


def test_extended_resources_are_converted() -> None:
    resources: Json = {"limits": {"nvidia.com/gpu": 2}}
    entry = {"extendedResource": "nvidia.com/gpu", "deviceClassName": "gpu"}

    fits, not_ever = (
        simulate(
            teams(), node("a", 2), alike(job("train", pods=count), resources=resources), policy(conversions=[entry])
        )
        for count in (1, 2)
    )

    assert fates(fits) == {"train": "Admitted"}
    (gang,) = fits.gangs
    assert [len(claim.devices) for pod in gang.plan for claim in pod.claims] == [2]
    assert fates(not_ever) != {"train": "Admitted"}


def test_defaults_for_pods_outside_queues_are_reported() -> None:
    resources: Json = {"limits": {"nvidia.com/gpu": 2}}
    entry = {"extendedResource": "nvidia.com/gpu", "deviceClassName": "gpu"}
    _, *others = teams()
    found = alike(job("train", pods=3), resources=resources), policy(conversions=[entry])

    effects = expand(others, node("a", 2), *found).effects

    assert {(effect.source, effect.act) for effect in effects} == {("Job default/train", Act.DEFAULT)}
    told = " ".join(effect.message for effect in effects)
    assert "resourceClaims" in told
    assert "nvidia.com/gpu" in told
    assert len(effects) == len({effect.message for effect in effects}), "pods of one template are told of once"
    assert expand(teams(), node("a", 2), *found).effects == (), "of who is in a queue the gang is told"


def test_templates_that_give_way_are_noted() -> None:
    spec: Json = {"devices": {"requests": []}}
    listed = [{"name": "one", "spec": spec}]

    cluster_state = expand(job("train"), policy("a", templates=listed), policy("b", templates=listed))

    assert cluster_state.notes == (
        "ClaimPolicy b: in namespace default, template one is that of ClaimPolicy a, which comes first",
    )
