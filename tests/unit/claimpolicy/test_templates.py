"""Which templates must exist for policies, what is done about those that differ, and whose are left alone."""

import copy
from dataclasses import replace
from typing import Any

from admission.api.kubernetes import claims, nodes, pods
from admission.api.kubernetes.claims import ClaimTemplate
from admission.api.kubernetes.nodes import Namespace
from admission.api.muster import claim_policies, queues
from admission.api.muster.claim_policies import ClaimPolicy
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import QueueName
from admission.claimpolicy import templates
from admission.claimpolicy.conversion_recipe import Recipe
from admission.claimpolicy.match import Policies
from admission.claimpolicy.pods import pending_templates
from admission.claimpolicy.templates import DesiredTemplate, Plan
from admission.errors import MalformedObjectError, Problem
from admission.podpolicy import pod_view
from admission.review import provided_templates

GPU = "nvidia.com/gpu"
SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 8}}]}}
OTHER = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 4}}]}}


def a_policy(name: str = "p", *, uid: str = "", template: dict[str, Any] | None = None, **spec: Any) -> ClaimPolicy:
    """Return a policy that provides h100x8 in the namespaces of team vision."""
    spec.setdefault("namespaceSelector", {"matchLabels": {"team": "vision"}})
    spec.setdefault("templates", [{"name": "h100x8", "spec": template or SPEC}])
    return claim_policies.decode({"metadata": {"name": name, "uid": uid or f"uid-{name}"}, "spec": spec})


def a_namespace(name: str, team: str = "vision", **meta: Any) -> Namespace:
    return nodes.decode_namespace({"metadata": {"name": name, "labels": {"team": team}, **meta}})


def stored(wanted: DesiredTemplate, **meta: Any) -> ClaimTemplate:
    """Return a template as it stands after it was written: whatever was added to its spec does not matter."""
    body = copy.deepcopy(wanted.body())
    body["spec"]["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] = "ExactCount"
    body["metadata"] |= {"uid": f"uid-of-{wanted.key}", **meta}
    return claims.decode_template(body)


def foreign(namespace: str, name: str, **meta: Any) -> ClaimTemplate:
    return claims.decode_template(
        {"metadata": {"namespace": namespace, "name": name, "uid": "theirs", **meta}, "spec": {"spec": SPEC}}
    )


def a_cluster(*found: ClaimPolicy | ClaimTemplate | Namespace, **rest: Any) -> Snapshot:
    return Snapshot(
        policies={one.name: one for one in found if isinstance(one, ClaimPolicy)},
        templates={one.meta.key: one for one in found if isinstance(one, ClaimTemplate)},
        namespaces={one.meta.name: one for one in found if isinstance(one, Namespace)},
        **rest,
    )


def planned(snapshot: Snapshot, **rest: Any) -> Plan:
    return templates.plan(Policies.build(snapshot.policies, snapshot.namespaces), snapshot, **rest)


def keys(found: tuple[DesiredTemplate, ...]) -> list[str]:
    return sorted(one.key for one in found)


def wanted(policy: ClaimPolicy, namespace: str = "a") -> DesiredTemplate:
    (template,) = policy.templates
    return DesiredTemplate(policy=policy, namespace=namespace, name=template.name, spec=template.spec)


def notes(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    return templates.problem_messages(planned(snapshot), ())


def test_a_template_is_missing_in_every_namespace_that_is_selected() -> None:
    going = a_namespace("going", deletionTimestamp="2026-11-21T12:00:00Z")
    found = a_cluster(a_policy(), a_namespace("a"), a_namespace("b"), a_namespace("c", "speech"), going)

    assert keys(planned(found).missing) == ["a/h100x8", "b/h100x8"]
    assert keys(planned(found, excluded=["b"]).missing) == ["a/h100x8"]


def test_a_policy_for_queues_makes_templates_in_namespaces_to_which_its_queue_is_open() -> None:
    queue = queues.decode(
        {"metadata": {"name": "q"}, "spec": {"namespaceSelector": {"matchLabels": {"team": "vision"}}}}
    )
    found = (a_policy(queues=["q"], namespaceSelector={}), a_namespace("a"), a_namespace("b", "speech"))

    assert keys(planned(a_cluster(*found, queues={QueueName("q"): queue})).missing) == ["a/h100x8"]
    assert planned(a_cluster(*found)).missing == ()


def test_a_claim_template_that_is_as_wanted_stays() -> None:
    policy = a_policy()

    assert planned(a_cluster(policy, a_namespace("a"), stored(wanted(policy)))) == Plan()


def test_a_claim_template_with_an_outdated_spec_is_replaced() -> None:
    queue_state = stored(wanted(a_policy()))
    changed = a_policy(template=OTHER)

    plan = planned(a_cluster(changed, a_namespace("a"), queue_state))

    assert plan == Plan(outdated=((wanted(changed), queue_state),))
    going = replace(queue_state, meta=replace(queue_state.meta, deleted=queue_state.meta.created))
    assert planned(a_cluster(changed, a_namespace("a"), going)) == Plan()


def test_a_claim_template_that_its_policy_no_longer_lists_is_surplus() -> None:
    queue_state = stored(wanted(a_policy()))

    for policy, namespace in ((a_policy(templates=[]), "vision"), (a_policy(), "speech")):
        assert planned(a_cluster(policy, a_namespace("a", namespace), queue_state)) == Plan(surplus=(queue_state,))


def test_a_claim_policy_with_a_problem_leaves_its_templates_as_they_are() -> None:
    """Pods would wait for what was there a moment ago."""
    queue_state = stored(wanted(a_policy()))
    flawed = a_policy(templates=[], rules=[{"cel": "x.", "message": "no CEL"}])

    assert planned(a_cluster(flawed, a_namespace("a"), queue_state)) == Plan()


def test_a_flaw_of_a_rule_keeps_no_template_from_being_made() -> None:
    flawed = a_policy(rules=[{"cel": "x.", "message": "no CEL"}])

    assert [template.name for template in planned(a_cluster(flawed, a_namespace("a"))).missing] == ["h100x8"]


def test_templates_of_others_are_never_touched() -> None:
    policy = a_policy()
    made = wanted(policy).body()["metadata"]
    labels, annotations = made["labels"], made["annotations"]
    elsewhere = wanted(policy, "b").body()["metadata"]["annotations"]
    gone = wanted(a_policy(uid="gone")).body()["metadata"]["annotations"]
    of_others = {
        "without any mark": {},
        "with the label alone": {"labels": labels},
        "with the annotation alone": {"annotations": annotations},
        "copied from another namespace": {"labels": labels, "annotations": elsewhere},
        "of a policy of the same name that is gone": {"labels": labels, "annotations": gone},
    }
    found = Snapshot()
    for meta in of_others.values():
        theirs = foreign("a", "h100x8", **meta)
        found = a_cluster(policy, a_namespace("a"), theirs)
        assert planned(found) == Plan(conflicting=(wanted(policy),))
        assert planned(a_cluster(a_policy(templates=[]), a_namespace("a"), theirs)) == Plan()
    assert notes(found) == {
        "p": ("in namespace a, template h100x8 is somebody else's and stays; rename one of the two, or delete it",)
    }


def test_a_claim_template_that_cannot_be_read_counts_as_that_of_others() -> None:
    error = MalformedObjectError("ResourceClaimTemplate", "a/h100x8", (Problem(".", "is odd"),))
    found = a_cluster(a_policy(), a_namespace("a"), malformed={("ResourceClaimTemplate", "a/h100x8"): error})

    assert keys(planned(found).conflicting) == ["a/h100x8"]


def test_of_two_policies_for_a_template_the_first_wins_and_the_other_reports_the_conflict() -> None:
    first, second = a_policy("first", order=1), a_policy("second", order=2, template=OTHER)
    found = a_cluster(first, second, *map(a_namespace, "abcde"))

    plan = planned(found)

    assert {one.policy.name for one in plan.missing} == {"first"}
    assert notes(found) == {
        "second": ("in namespaces a, b, c and 2 more, template h100x8 is that of ClaimPolicy first, which comes first",)
    }
    queue_state = stored(wanted(second))
    assert (wanted(first), queue_state) in planned(a_cluster(first, second, a_namespace("a"), queue_state)).outdated


def test_a_claim_template_that_the_api_server_refuses_is_reported() -> None:
    policy = a_policy()

    assert templates.problem_messages(Plan(), [(wanted(policy), "{no}")]) == {
        "p": ("in namespace a, template h100x8 is not written: {no}",)
    }


CONVERTS: dict[str, Any] = {
    "templates": [],
    "conversions": [{"extendedResource": GPU, "deviceClassName": "gpu.example.com"}],
}
RECIPE = Recipe(policy="p", resource=GPU, counts=(8, 2))


def a_converted_pod(*, template: str = "") -> dict[str, Any]:
    """Return a pod that was converted, as a keyword for `a_cluster`."""
    claim = {"name": "nvidia-com-gpu", "resourceClaimTemplateName": template or RECIPE.template}
    metadata = {"name": "x", "namespace": "a", "uid": "x", "annotations": {names.CONVERTED: str(RECIPE)}}
    pod = pods.decode({"metadata": metadata, "spec": {"containers": [], "resourceClaims": [claim]}})
    return {"pods": {pod.meta.uid: pod}}


def test_converted_pods_have_their_template_made() -> None:
    policy = a_policy(**CONVERTS)

    (one,) = planned(a_cluster(policy, a_namespace("a"), **a_converted_pod())).missing

    assert (one.key, one.recipe) == (f"a/{RECIPE.template}", RECIPE)
    counts = [request["exactly"]["count"] for request in one.spec["devices"]["requests"]]
    assert counts == [8, 2]


def test_a_recipe_counts_only_where_its_policy_says_so_and_the_pod_refers_to_its_template() -> None:
    pod = a_converted_pod()

    assert planned(a_cluster(a_policy(), a_namespace("a"), **pod)).missing[0].name == "h100x8"
    assert planned(a_cluster(a_policy(**CONVERTS), a_namespace("a", "speech"), **pod)) == Plan()
    assert planned(a_cluster(a_policy("q", **CONVERTS), a_namespace("a"), **pod)) == Plan()
    other = a_converted_pod(template="other")
    assert planned(a_cluster(a_policy(**CONVERTS), a_namespace("a"), **other)) == Plan()


def test_the_template_of_converted_pods_is_idle_when_the_pods_are_gone() -> None:
    policy = a_policy(**CONVERTS)
    (one,) = planned(a_cluster(policy, a_namespace("a"), **a_converted_pod())).missing
    queue_state = stored(one)

    assert planned(a_cluster(policy, a_namespace("a"), queue_state, **a_converted_pod())) == Plan()
    assert planned(a_cluster(policy, a_namespace("a"), queue_state)) == Plan(idle=(queue_state,))
    unconverted = a_policy(templates=[])
    assert planned(a_cluster(unconverted, a_namespace("a"), queue_state, **a_converted_pod())) == Plan()


def test_a_policy_name_too_long_for_the_template_label_is_shortened() -> None:
    just, long = "x" * templates.LONGEST_LABEL, "x" * 100
    policy = a_policy(long)

    assert templates.label("short") == "short"
    assert templates.label(just) == just
    assert len(templates.label(long)) <= templates.LONGEST_LABEL
    assert templates.label(long) != templates.label(long + "y")
    assert planned(a_cluster(policy, a_namespace("a"), stored(wanted(policy)))) == Plan()


def test_a_pod_is_judged_by_the_templates_that_are_going_to_be_written_for_it_and_otherwise_by_those_there() -> None:
    policy, stands = a_policy(**CONVERTS), foreign("a", RECIPE.template)
    gone = Recipe(policy="gone", resource=GPU, counts=(1,))

    def seen(snapshot: Snapshot, *wanted: str) -> dict[str, ClaimTemplate]:
        listed = [{"name": f"c{at}", "resourceClaimTemplateName": name} for at, name in enumerate(wanted)]
        meta = {"name": "x", "annotations": {names.CONVERTED: f"{gone},{RECIPE}"}}
        pod = pod_view.decode({"metadata": meta, "spec": {"containers": [], "resourceClaims": listed}}, "a")
        return dict(pending_templates.with_pending(pod, provided_templates.claim_context(snapshot)).templates)

    new = seen(a_cluster(policy, a_namespace("a")), RECIPE.template, gone.template)
    assert {key: len(one.spec.requests) for key, one in new.items()} == {f"a/{RECIPE.template}": 2}
    assert seen(a_cluster(policy, a_namespace("a"), stands), RECIPE.template, "other") == {stands.meta.key: stands}
