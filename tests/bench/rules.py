"""Rules of ClaimPolicies: what a review of eight requests costs under twenty rules, and a pod of templates seen before.

One process, one core: processor time, the least of several rounds, since the machine is busy with other things too.
"""

import time
from collections.abc import Callable
from typing import Any

from rich.table import Table

from admission.api.kubernetes import claims
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Namespace
from admission.api.kubernetes.pods import PodClaim
from admission.api.muster import claim_policies
from admission.api.snapshot import Snapshot
from admission.claimpolicy import match, rules
from admission.claimpolicy.cel_subject import Subject, User
from admission.claimpolicy.match import Policies
from admission.claimpolicy.pods.pod_rules import Rulings
from admission.podpolicy.pod_view import PodView

GOALS_MS = {"claim": 1.0, "pod": 0.1}
RUNS = 50
CLAIMS = 8

RULES = (
    "request.exactly.count <= 8",
    "request.exactly.deviceClassName.startsWith('gpu')",
    "request.exactly.allocationMode != 'All'",
    "!has(request.exactly.adminAccess) || !request.exactly.adminAccess",
    "claim.metadata.?labels[?'team'].orValue('') == 'vision'",
    "request.exactly.selectors.all(s, !s.cel.expression.contains('A100'))",
    "queue != 'closed' || user.username != 'eve'",
    "user.groups.exists(g, g == 'dev') || request.exactly.count < 4",
    "claim.spec.devices.requests.size() <= 16",
    "namespaceObject.metadata.labels.team == 'vision'",
    "!has(request.exactly.tolerations) || request.exactly.tolerations.all(t, has(t.key))",
    "request.exactly.deviceClassName in ['gpu.example.com', 'nic.example.com']",
    "variables.requests < 100",
    "variables.team == 'vision'",
    "request.name.matches('^[a-z0-9-]+$')",
    "has(request.exactly.capacity) ? true : request.exactly.count > 0",
    "queue.startsWith('research')",
    "!(request.exactly.count > 4) || user.username == 'alice'",
    "size(request.name) < 60",
    "request.exactly.count % 1 == 0",
)
VARIABLES = {
    "requests": "claim.spec.devices.requests.map(r, r.exactly.count).size()",
    "team": "claim.metadata.labels.team",
}
SELECTOR = "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model == 'H100'"
USER = User(username="alice", groups=("vision", "dev"))


def measure(rounds: int) -> dict[str, Any]:
    """Return the milliseconds of compiling the policy, of a claim's review and of a pod's."""
    decoded = claim_policies.decode(policy())
    compiled = match.compile_policy(decoded)
    assert not compiled.problems
    times = {
        "compile": _least(lambda: match.compile_policy(decoded), rounds, runs=3),
        "claim": _least(lambda: _claim_review(compiled), rounds),
        "pod": _least(_pod_review(decoded), rounds),
    }
    return {"rounds": rounds, "ms": times, "met": all(times[name] <= goal for name, goal in GOALS_MS.items())}


def table(result: dict[str, Any]) -> Table:
    made = Table(title=f"{len(RULES)} rules on {CLAIMS} requests, the least of {result['rounds']} rounds")
    for column in ("what", "ms", "goal"):
        made.add_column(column, justify="left" if column == "what" else "right")
    names = {
        "compile": "compile the policy",
        "claim": "a new claim of eight requests",
        "pod": "a pod of eight templates seen before",
    }
    for name, ms in result["ms"].items():
        made.add_row(names[name], f"{ms:.3f}", f"{GOALS_MS[name]:g}" if name in GOALS_MS else "")
    return made


def _claim_review(compiled: match.CompiledPolicy) -> None:
    subject = Subject(claim(), namespace={"metadata": _NAMESPACE}, user=USER, queue="research")
    assert not rules.judge([compiled.rules], [subject]).findings


def _pod_review(decoded: claim_policies.ClaimPolicy) -> Callable[[], None]:
    labels = {"team": "vision"}
    namespaces = {"ml": Namespace(meta=Meta(name="ml"), labels=labels)}
    spec = {"metadata": {"labels": labels}, "spec": claim()["spec"]}
    templates = [
        claims.decode_template({"metadata": {"name": f"t{number}", "namespace": "ml"}, "spec": spec})
        for number in range(CLAIMS)
    ]
    snapshot = Snapshot(namespaces=namespaces, templates={template.meta.key: template for template in templates})
    used = tuple(PodClaim(name=template.meta.name, template=template.meta.name) for template in templates)
    arrival = PodView(namespace="ml", labels={"muster.dev/queue": "research"}, claims=used)
    known, rulings = Policies.build({decoded.name: decoded}, namespaces), Rulings()
    controller = User(username="system:serviceaccount:kube-system:job-controller")

    def review() -> None:
        assert not rulings.evaluate(arrival, snapshot, known, pod=dict, user=controller).findings

    return review


_NAMESPACE = {"name": "ml", "labels": {"team": "vision"}}


def policy() -> dict[str, Any]:
    """Return the policy as JSON, for all namespaces."""
    rules = [{"cel": cel, "message": "no"} for cel in RULES]
    variables = [{"name": name, "expression": cel} for name, cel in VARIABLES.items()]
    return {"metadata": {"name": "bench"}, "spec": {"variables": variables, "rules": rules}}


def claim() -> dict[str, Any]:
    """Return the claim as JSON."""
    asked = {
        "deviceClassName": "gpu.example.com",
        "allocationMode": "ExactCount",
        "count": 2,
        "selectors": [{"cel": {"expression": SELECTOR}}],
    }
    requests = [{"name": f"gpu{number}", "exactly": asked} for number in range(CLAIMS)]
    metadata = {"name": "train", "namespace": "ml", "labels": {"team": "vision"}}
    return {"metadata": metadata, "spec": {"devices": {"requests": requests}}}


def _least(run: Callable[[], object], rounds: int, *, runs: int = RUNS) -> float:
    """Return the milliseconds of a run in the fastest round."""
    run()
    found = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(runs):
            run()
        found.append((time.process_time() - began) / runs * 1e3)
    return min(found)
