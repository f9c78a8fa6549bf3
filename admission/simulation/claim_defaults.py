"""Claims and templates from manifests as the webhook would store them, with the defaults of ClaimPolicies.

For `muster simulate`, including templates that policies provide. Their creator is unknown, so rules that read the user
are not evaluated.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from admission.api.kubernetes import meta
from admission.api.kubernetes.admission_review import Verdict
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json
from admission.api.values.json_patch import Operation
from admission.claimpolicy import admission, rules, templates
from admission.claimpolicy.admission import ClaimView
from admission.claimpolicy.cel_subject import User
from admission.conversion import equivalents
from admission.review import provided_templates
from admission.simulation import manifests
from admission.simulation.manifests import Store

KINDS = {"ResourceClaim": False, "ResourceClaimTemplate": True}
"""Kind → whether it is a template."""


class Act(StrEnum):
    """An action of the webhook on a claim or template."""

    DEFAULT = "Default"
    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One action of the webhook. source: the object, as `Kind namespace/name`."""

    source: str
    act: Act
    message: str


def completed(objects: Sequence[Json], store: Store) -> tuple[list[Json], list[Effect]]:
    """Return the objects, new ones with their defaults, and the other actions of admission on them.

    store: the decoded objects. Objects with a UID exist already and get no defaults.
    """
    context = provided_templates.claim_context(manifests.snapshot(store))
    malformed = {index for index, _ in store.problems}
    found: list[Json] = []
    effects: list[Effect] = []
    for index, obj in enumerate(objects):
        is_new = obj["kind"] in KINDS and index not in malformed and not obj["metadata"].get("uid")
        if not is_new:
            found.append(obj)
            continue
        namespace = str(obj["metadata"].get("namespace") or store.namespace)
        current = equivalents.read(obj)[0]
        claim_view = ClaimView(obj=current, namespace=namespace, user=User(), template=KINDS[str(obj["kind"])])
        defaulted = admission.completion(claim_view, context)
        found.append(defaulted.obj)
        judgement = admission.judge(replace(claim_view, obj=defaulted.obj), context)
        verdict = replace(judgement, warnings=(*defaulted.warnings, *judgement.warnings))
        effects += _effects(
            f"{obj['kind']} {namespace}/{meta.name_in(obj).rpartition('/')[2]}", defaulted.patch, verdict
        )
    return found, effects


def template_differences(snapshot: Snapshot) -> tuple[str, ...]:
    """Return which templates differ from what ClaimPolicies want, and why."""
    if not snapshot.policies:
        return ()
    plan = templates.plan(provided_templates.claim_context(snapshot).policies, snapshot)
    reported = templates.problem_messages(plan, ())
    return tuple(f"ClaimPolicy {policy}: {message}" for policy in sorted(reported) for message in reported[policy])


def patch_effects(source: str, patch: Iterable[Operation]) -> Iterator[Effect]:
    """Yield the additions and removals of a patch at admission."""
    for step in patch:
        value = json.dumps(step["value"], ensure_ascii=False) if "value" in step else "is removed"
        yield Effect(source=source, act=Act.DEFAULT, message=f"{_field(step['path'])}: {value}")


def _effects(source: str, patch: Iterable[Operation], verdict: Verdict) -> Iterator[Effect]:
    yield from patch_effects(source, patch)
    if verdict.denial is not None:
        yield Effect(source=source, act=Act.DENY, message=f"{verdict.denial.reason}: {verdict.denial.message}")
    for warning in verdict.warnings:
        yield Effect(source=source, act=Act.WARN, message=warning.removeprefix("muster: "))
    yield from audit_effects(source, verdict.annotations)


def audit_effects(source: str, annotations: Mapping[str, str]) -> Iterator[Effect]:
    """Yield the findings of audit rules, from the audit annotations of a verdict."""
    findings: list[dict[str, Any]] = json.loads(annotations.get(rules.AUDIT, "[]"))
    for finding in findings:
        names = ", ".join(finding["requests"])
        yield Effect(
            source=source,
            act=Act.AUDIT,
            message=f"ClaimPolicy {finding['policy']}: requests {names}: {finding['message']}",
        )


def _field(path: str) -> str:
    """Return a path of a patch as a Kubernetes field path."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    return "".join(f"[{part}]" if part.isdigit() or part == "-" else f".{part}" for part in parts).removeprefix(".")
