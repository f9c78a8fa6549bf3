"""Small policies, claims and templates, and what the policies' defaults make of them."""

from typing import Any

import jsonpatch

from admission.api.muster import claim_policies
from admission.claimpolicy import defaults as claimpolicy_defaults, match
from admission.claimpolicy.cel_subject import User
from admission.claimpolicy.defaults import Completed, Requester

Json = dict[str, Any]

ASKER = Requester(namespace={"metadata": {"name": "ml", "labels": {"team": "vision"}}}, user=User(username="alice"))


def a_policy(name: str = "p", *, order: int = 0, **spec: Any) -> claim_policies.ClaimPolicy:
    return claim_policies.decode({"metadata": {"name": name}, "spec": {"order": order, **spec}})


def defaults(*entries: Json) -> claim_policies.ClaimPolicy:
    """Return a policy of these defaults."""
    return a_policy(defaults=list(entries))


def exactly(name: str = "gpu", device_class: str = "gpu", **asked: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": device_class, **asked}}


def alternatives(*asked: Json, name: str = "gpu") -> Json:
    return {"name": name, "firstAvailable": list(asked)}


def a_claim(*requests: Json, config: list[Json] | None = None, **meta: Any) -> Json:
    devices = {"requests": list(requests), **({"config": config} if config is not None else {})}
    metadata = {"name": "c", "namespace": "ml", **meta}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
    }


def a_template(*requests: Json, **meta: Any) -> Json:
    claim = a_claim(*requests)
    return {
        **claim,
        "kind": "ResourceClaimTemplate",
        "metadata": claim["metadata"] | meta,
        "spec": {"spec": claim["spec"]},
    }


def complete(obj: Json, *found: claim_policies.ClaimPolicy, asker: Requester = ASKER) -> Completed:
    """Give an object the defaults of policies, in this order; what comes out is what the patch makes of it."""
    compiled = [match.compile_policy(policy) for policy in found]
    assert [problem for one in compiled for problem in one.problems] == []
    entries = [entry for one in compiled for entry in one.defaults]
    completed = claimpolicy_defaults.complete(entries, obj, asker, template=obj["kind"] == "ResourceClaimTemplate")
    assert jsonpatch.apply_patch(obj, list(completed.patch)) == completed.obj
    return completed


def asked(obj: Json, *found: claim_policies.ClaimPolicy) -> Any:
    """Return what the first request of a claim asks for, when it has its defaults."""
    return complete(obj, *found).obj["spec"]["devices"]["requests"][0]["exactly"]
