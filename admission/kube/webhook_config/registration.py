"""Registration of the webhooks: which pods and claims the API server sends to Muster, as two configurations.

Namespaces that a queue selects are closed while Muster is down (failurePolicy Fail), since an unseen pod would run
outside the quota. Other pods are sent only if they name a queue, and are created even while Muster is down. Claims and
claim templates are sent only in the namespaces that a queue or a ClaimPolicy selects.

Nothing is closed (failurePolicy Ignore) until `dry_run_probe` has proved that the API server reaches the webhook. A
closed namespace then stays closed whatever happens to the webhook: if an outage reopened it, causing one would be a way
to bypass the quota.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from admission.api.muster.claim_policies import ClaimPolicy
from admission.api.muster.queues import HoldAt, Queue
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.selectors import LabelSelector, Requirement
from admission.errors import GoneError, MusterError
from admission.kube.cache import watched_resources
from admission.kube.cache.store import Store, Subscription
from admission.kube.client import backoff
from admission.kube.client.connection import Connection
from admission.kube.webhook_config import match_conditions, webhook_rules
from admission.kube.webhook_config.client_config import ClientConfig, WebhookState
from admission.kube.webhook_config.namespace_selectors import complement, digest, distinct, expression

log = structlog.get_logger(__name__)

NAME = "muster"
API_VERSION = "admissionregistration.k8s.io/v1"
KINDS = {"MutatingWebhookConfiguration": "mutatingwebhookconfigurations"} | {
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations"
}

_NAMES_QUEUE = {"matchExpressions": [{"key": names.QUEUE, "operator": "Exists"}]}

NEVER = ("kube-system", "kube-node-lease", "kube-public")
"""Namespaces that the webhook never affects."""

INJECT = "cert-manager.io/inject-ca-from"
"""Annotation that names the Certificate `namespace/name` from which cert-manager writes the caBundle."""

TIMEOUT_SECONDS = 5
AGAIN_SECONDS = 600.0
"""Seconds after which the configurations are written though nothing changed, since they may have been edited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The content of the configurations. selectors: the namespaces of each queue; namespace: Muster's own.

    controller: Muster's user name, whose changes are not sent. holding: the namespaces of queues that hold workloads as
    a whole, or some of them; holding_all: of these, those of queues that hold all. policies: the namespaces of each
    ClaimPolicy that has defaults or rules; reading_pods: of those whose rules read the pod; rewriting: of those that
    have templates or conversions. resources: the extended resources that become claims. proved: whether the API server
    is known to reach the webhook; nothing is closed before.
    """

    client: ClientConfig
    selectors: tuple[LabelSelector, ...]
    namespace: str
    controller: str
    holding: tuple[LabelSelector, ...] = ()
    holding_all: tuple[LabelSelector, ...] = ()
    policies: tuple[LabelSelector, ...] = ()
    reading_pods: tuple[LabelSelector, ...] = ()
    rewriting: tuple[LabelSelector, ...] = ()
    resources: tuple[str, ...] = ()
    proved: bool = True


async def register(connection: Connection, registration: Registration) -> None:
    """Create or update both configurations; entries of removed selectors disappear."""
    for encode in (mutating, validating):
        body = encode(registration)
        if not registration.proved:
            body["webhooks"] = [webhook | {"failurePolicy": "Ignore"} for webhook in body["webhooks"]]
        await connection.apply(_path(body["kind"]), body)


async def is_closed(connection: Connection) -> bool:
    """Return whether the stored configurations close anything, which means that some process was proved before."""
    try:
        found = await connection.get(_path("MutatingWebhookConfiguration"))
    except GoneError:
        return False
    return any(webhook.get("failurePolicy") == "Fail" for webhook in found.get("webhooks") or ())


async def unregister(connection: Connection) -> None:
    """Remove both configurations. A no-op when they are gone."""
    for kind in KINDS:
        try:
            await connection.delete(_path(kind))
        except GoneError:
            log.debug("the webhook configuration is gone already", kind=kind)


async def keep(connection: Connection, store: Store, state: WebhookState, *, namespace: str, controller: str) -> None:
    """Update the configurations by queues and policies until cancelled. The store must watch both, and be synced."""
    written: Registration | None = None
    failed, stale = 0, True
    with store.subscribe(watched_resources.QUEUES, watched_resources.POLICIES) as changed:
        state.wake = changed.wake
        while True:
            wanted = Registration(
                client=state.client,
                selectors=_selectors(store, written.selectors if written else ()),
                holding=_selectors(store, written.holding if written else (), _holds_workloads),
                holding_all=_selectors(store, written.holding_all if written else (), _holds_all_workloads),
                namespace=namespace,
                controller=controller,
                policies=_policies(store, _has_defaults_or_rules, written.policies if written else ()),
                reading_pods=_policies(store, _reads_pods, written.reading_pods if written else ()),
                rewriting=_policies(store, _rewrites_pods, written.rewriting if written else ()),
                resources=_resources(store, written.resources if written else ()),
                proved=state.proved,
            )
            if stale or state.rewrite_requested or wanted != written:
                state.rewrite_requested = False
                try:
                    if not wanted.proved and await is_closed(connection):
                        state.proved = True
                        continue
                    await register(connection, wanted)
                except MusterError as error:
                    failed += 1
                    log.warning("the webhooks are not registered", error=str(error))
                    await asyncio.sleep(backoff.backoff(failed, base=0.5, longest=30.0))
                    continue
                done = "the webhooks are registered" if wanted.proved else "the webhooks are written, and to be proved"
                log.info(done, selectors=len(wanted.selectors))
                written, failed = wanted, 0
                state.written.set()
            stale = not await _changed(changed)


async def _changed(changed: Subscription) -> bool:
    """Wait for a change of queues or policies; return False when none came within AGAIN_SECONDS."""
    try:
        async with asyncio.timeout(AGAIN_SECONDS):
            await changed.next()
    except TimeoutError:
        return False
    return True


def _any_queue(_queue: Queue) -> bool:
    return True


def _holds_workloads(queue: Queue) -> bool:
    return queue.hold_at is not HoldAt.POD


def _holds_all_workloads(queue: Queue) -> bool:
    return queue.hold_at is HoldAt.WORKLOAD


def _selectors(
    store: Store, written: Iterable[LabelSelector], wanted: Callable[[Queue], bool] = _any_queue
) -> tuple[LabelSelector, ...]:
    """Return the distinct namespace selectors of some queues, in a stable order. written: the previous ones."""
    snapshot = store.snapshot()
    selectors = [
        queue.namespaces for queue in snapshot.queues.values() if queue.namespaces is not None and wanted(queue)
    ]
    if any(kind == watched_resources.QUEUES.name for kind, _ in snapshot.malformed):
        # The namespaces of a queue that cannot be read any more are unknown: all previous ones stay closed meanwhile.
        selectors += written
    return distinct(selectors)


def _policies(
    store: Store, wanted: Callable[[ClaimPolicy], bool], written: Iterable[LabelSelector]
) -> tuple[LabelSelector, ...]:
    """Return the distinct namespace selectors of some policies. written: the previous ones."""
    snapshot = store.snapshot()
    selectors = [policy.namespaces for policy in snapshot.policies.values() if wanted(policy)]
    if any(kind == watched_resources.POLICIES.name for kind, _ in snapshot.malformed):
        selectors += written
    return distinct(selectors)


def _has_defaults_or_rules(policy: ClaimPolicy) -> bool:
    return bool(policy.defaults or policy.rules)


def _reads_pods(policy: ClaimPolicy) -> bool:
    """Return whether a rule or variable mentions the pod; a false positive only costs a needless call."""
    texts = [*(rule.cel for rule in policy.rules), *(variable.expression for variable in policy.variables)]
    return bool(policy.rules) and any("pod" in text for text in texts)


def _rewrites_pods(policy: ClaimPolicy) -> bool:
    return bool(policy.templates or policy.conversions)


def _resources(store: Store, written: Iterable[str]) -> tuple[str, ...]:
    """Return the extended resources that policies turn into claims. written: the previous ones."""
    snapshot = store.snapshot()
    found = {conversion.resource for policy in snapshot.policies.values() for conversion in policy.conversions}
    unreadable = any(kind == watched_resources.POLICIES.name for kind, _ in snapshot.malformed)
    return tuple(sorted(found.union(written) if unreadable else found))


def mutating(registration: Registration) -> dict[str, Any]:
    """Return the MutatingWebhookConfiguration: new pods, Jobs (to record their creator), claims and held workloads.

    Jobs come first and are never blocked, except those that already name a creator: while Muster is down that name
    could not be corrected, and would be trusted for their pods. Of Jobs that name a queue or may be held as a whole,
    `/hold` records it.
    """
    conditions = [match_conditions.NO_MIRROR_CONDITION, *_not_complete(registration)]
    entry = {"rules": [webhook_rules.pod("CREATE")], "reinvocationPolicy": "IfNeeded", "matchConditions": conditions}
    configuration = _configuration("MutatingWebhookConfiguration", registration, "/mutate", entry)
    claims = {
        "rules": [webhook_rules.claim("CREATE", "UPDATE")],
        "reinvocationPolicy": "IfNeeded",
        "matchConditions": [
            match_conditions.NOT_ALLOCATED_AT_ONCE,
            {"name": "new-spec", "expression": match_conditions.NEW_SPEC},
        ],
    }
    claim_webhooks = _claim_webhooks(registration, "/mutate", registration.policies, claims)
    converted = {"name": "asks-for-devices", "expression": match_conditions.asks_for_devices(registration.resources)}
    pod_webhooks = _other_pod_webhooks(
        registration, "/mutate", registration.rewriting, match_conditions.NO_MIRROR_CONDITION, converted
    )
    webhooks = [*_job_webhooks(registration), *configuration["webhooks"]]
    reinvoked = {"reinvocationPolicy": "IfNeeded"}
    configuration["webhooks"] = [*webhooks, *(webhook | reinvoked for webhook in pod_webhooks), *claim_webhooks]
    configuration["webhooks"] += [webhook | reinvoked for webhook in _queue_webhooks(registration, "/hold")]
    configuration["webhooks"] += _workload_webhooks(registration, "/hold")
    configuration["webhooks"].append(_probe_webhook(registration))
    return configuration


def _not_complete(registration: Registration) -> tuple[dict[str, str], ...]:
    """Return the condition that leaves out complete pods of Jobs; none where policies may read or change pods."""
    are_read = registration.policies or registration.reading_pods or registration.rewriting
    return () if are_read else (match_conditions.NOT_COMPLETE,)


def _workload_webhooks(registration: Registration, path: str) -> Iterator[dict[str, Any]]:
    """Yield the webhooks for workloads that are created, suspended or resumed where they are held as a whole.

    They are closed like pods: an unseen workload would not be suspended, and its pods would be held one by one. Where
    queues hold some of them alone, new ones that name no queue are not: their pods are judged.
    """
    common, validates = _common(registration, path), path == "/validate"
    as_held = (webhook_rules.NOT_AS_HELD,) if validates else ()
    as_marked = (*as_held, webhook_rules.NOT_MARKED) if validates else ()
    all_held = set(map(digest, registration.holding_all))
    for selector in distinct(registration.holding):
        if digest(selector) in all_held:
            shown = {"held": ("Fail", as_held)}
        else:
            closed, opened = webhook_rules.NOT_NEW_UNNAMED, webhook_rules.NEW_UNNAMED
            shown = {"held": ("Fail", (*as_marked, closed)), "open": ("Ignore", (*as_marked, opened))}
        for name, (policy, conditions) in shown.items():
            entry = webhook_rules.held_workloads(registration.controller, *conditions)
            identity = _scope(f"{name}-{digest(selector)}", selector, registration.namespace, "workloads")
            yield {**common, **identity, **entry, "failurePolicy": policy}


def _queue_webhooks(registration: Registration, path: str) -> Iterator[dict[str, Any]]:
    """Yield the webhooks for workloads that name a queue, where a queue selects their namespace.

    They are closed like pods: the name would not reach the pods of an unseen workload. Those that are held as a whole
    are shown once.
    """
    for selector in distinct(registration.selectors):
        conditions = (webhook_rules.NAMED, webhook_rules.NOT_MARKED, *_not_held(registration, selector))
        entry = webhook_rules.workloads(registration.controller, *conditions)
        identity = _scope(f"named-{digest(selector)}", selector, registration.namespace, "podtemplates")
        yield {**_common(registration, path), **identity, **entry, "failurePolicy": "Fail"}


def _template_webhooks(registration: Registration) -> Iterator[dict[str, Any]]:
    """Yield the webhooks for workloads whose templates may name a queue, and for those that name one elsewhere.

    They are open: their pods are judged as well. Elsewhere, no queue can be entered.
    """
    common, queued = _common(registration, "/validate"), distinct(registration.selectors)
    unnamed = (webhook_rules.UNNAMED, webhook_rules.UNOWNED, webhook_rules.MAY_BE_REFUSED, webhook_rules.NOT_MARKED)
    for selector in queued:
        entry = webhook_rules.workloads(registration.controller, *unnamed, *_not_held(registration, selector))
        identity = _scope(f"open-{digest(selector)}", selector, registration.namespace, "podtemplates")
        yield {**common, **identity, **entry, "failurePolicy": "Ignore"}
    others = complement(queued)
    if others is not None:
        identity = _scope("labelled", others, registration.namespace, "podtemplates")
        entry = webhook_rules.workloads(registration.controller) | {"objectSelector": _NAMES_QUEUE}
        yield {**common, **identity, **entry, "failurePolicy": "Ignore"}


def _not_held(registration: Registration, selector: LabelSelector) -> tuple[tuple[str, str], ...]:
    """Return the condition that leaves out what `_workload_webhooks` show in these namespaces, at the same path."""
    held = digest(selector) in map(digest, registration.holding)
    return (webhook_rules.NOT_HELD,) if held else ()


def _probe_webhook(registration: Registration) -> dict[str, Any]:
    """Return the webhook for the Leases of `dry_run_probe`, which are dry runs."""
    own_namespace = Requirement(key="kubernetes.io/metadata.name", operator="In", values=(registration.namespace,))
    in_own_namespace = {"matchExpressions": [expression(own_namespace)]}
    marked = {"matchExpressions": [{"key": names.PROOF, "operator": "Exists"}]}
    identity = {"name": f"proof.leases.{names.GROUP}", "namespaceSelector": in_own_namespace, "objectSelector": marked}
    return {
        **_common(registration, "/prove"),
        **identity,
        "rules": [webhook_rules.rule("coordination.k8s.io", "leases", "CREATE")],
        "failurePolicy": "Ignore",
    }


def _claim_webhooks(
    registration: Registration, path: str, selectors: Iterable[LabelSelector], entry: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    common = _common(registration, path)
    for selector in distinct(selectors):
        identity = _scope(f"selected-{digest(selector)}", selector, registration.namespace, "claims")
        yield {**common, **identity, **entry, "failurePolicy": "Fail"}


def _job_webhooks(registration: Registration) -> Iterator[dict[str, Any]]:
    common = _common(registration, "/mutate")
    named = {
        "rules": [webhook_rules.job("CREATE", "UPDATE")],
        "matchConditions": [{"name": "named", "expression": match_conditions.NAMED}],
    }
    anywhere = _scope("named", LabelSelector(), registration.namespace, "jobs")
    yield common | anywhere | named | {"failurePolicy": "Fail"}
    for selector in distinct(registration.selectors):
        queued = _scope(f"queued-{digest(selector)}", selector, registration.namespace, "jobs")
        shown_once = (webhook_rules.NOT_NAMED, *_not_held(registration, selector))
        conditions = [dict(zip(("name", "expression"), one, strict=True)) for one in shown_once]
        entry = {"rules": [webhook_rules.job("CREATE")], "matchConditions": conditions, "failurePolicy": "Ignore"}
        yield common | queued | entry


def validating(registration: Registration) -> dict[str, Any]:
    """Return the ValidatingWebhookConfiguration: new pods, relevant changes of pods, claims, and Muster's objects.

    Pods' status is included, since it also updates labels and annotations (`pkg/registry/core/pod`,
    podStatusStrategy), and pods' resize, since it changes what they request. No other subresource that updates a pod
    does either.
    """
    subresources = [webhook_rules.pod("UPDATE", resource=f"pods/{name}") for name in ("status", "resize")]
    rules = [webhook_rules.pod("CREATE", "UPDATE"), *subresources]
    conditions = [
        {"name": "not-by-muster", "expression": match_conditions.not_by(registration.controller)},
        {"name": "what-matters", "expression": match_conditions.MATTERS},
        *_not_complete(registration),
    ]
    entry = {"rules": rules, "matchConditions": conditions}
    configuration = _configuration("ValidatingWebhookConfiguration", registration, "/validate", entry)
    claims = {"rules": [webhook_rules.claim("CREATE")], "matchConditions": [match_conditions.NOT_ALLOCATED_AT_ONCE]}
    configuration["webhooks"] += _claim_webhooks(registration, "/validate", registration.policies, claims)
    with_policies = set(map(digest, registration.policies))
    queued = [selector for selector in registration.selectors if digest(selector) not in with_policies]
    authored = claims | {
        "matchConditions": [match_conditions.NOT_ALLOCATED_AT_ONCE, match_conditions.NOT_FROM_TEMPLATE]
    }
    configuration["webhooks"] += _claim_webhooks(registration, "/validate", queued, authored)
    with_claims = {"name": "with-claims", "expression": match_conditions.WITH_CLAIMS}
    configuration["webhooks"] += _other_pod_webhooks(registration, "/validate", registration.reading_pods, with_claims)
    conditions = [match_conditions.NO_MIRROR_CONDITION, match_conditions.MAY_TAKE_DEVICES_CONDITION]
    demanding = [match_conditions.DEMANDING]
    configuration["webhooks"] += _other_pod_webhooks(registration, "/validate", demanding, *conditions, name="required")
    configuration["webhooks"] += _queue_webhooks(registration, "/validate")
    configuration["webhooks"] += _template_webhooks(registration)
    configuration["webhooks"] += _workload_webhooks(registration, "/validate")
    configuration["webhooks"].append(_own_object_webhook(registration))
    return configuration


def _other_pod_webhooks(
    registration: Registration,
    path: str,
    selectors: Iterable[LabelSelector],
    *conditions: Mapping[str, str],
    name: str = "",
) -> Iterator[dict[str, Any]]:
    """Yield the webhooks for new pods that meet conditions in some namespaces, except where a queue covers all pods.

    name: of the only one, else `selected-DIGEST`.
    """
    queued = distinct(registration.selectors)
    others, covered = complement(queued), set(map(digest, queued))
    if others is None:
        return
    entry = {"rules": [webhook_rules.pod("CREATE")], "matchConditions": list(conditions), "failurePolicy": "Fail"}
    for selector in distinct(selectors):
        if digest(selector) not in covered:
            combined = LabelSelector(requirements=(*selector.requirements, *others.requirements))
            identity = _scope(name or f"selected-{digest(selector)}", combined, registration.namespace)
            yield {**_common(registration, path), **identity, **entry}


def _own_object_webhook(registration: Registration) -> dict[str, Any]:
    """Return the webhook for Muster's own objects, with Ignore, so that they can be corrected while Muster is down.

    The status of an object that was never judged reports its problems.
    """
    conditions = [
        {"name": "not-by-muster", "expression": match_conditions.no_gang_by(registration.controller)},
        {"name": "new-spec", "expression": match_conditions.NEW_SETTINGS},
    ]
    common = _common(registration, "/validate")
    anywhere = _scope("written", LabelSelector(), registration.namespace, "objects")
    return (
        common
        | anywhere
        | {"rules": webhook_rules.own_objects(), "matchConditions": conditions, "failurePolicy": "Ignore"}
    )


def _configuration(kind: str, registration: Registration, path: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    common = {**_common(registration, path), **entry}
    webhooks = [
        common | _scope(f"queued-{digest(selector)}", selector, registration.namespace) | {"failurePolicy": "Fail"}
        for selector in distinct(registration.selectors)
    ]
    others = complement(distinct(registration.selectors))
    if others is not None:
        anywhere = _scope("labelled", others, registration.namespace)
        webhooks.append(common | anywhere | {"objectSelector": _NAMES_QUEUE, "failurePolicy": "Ignore"})
    metadata: dict[str, Any] = {"name": NAME}
    metadata["labels"] = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "webhook"}
    if registration.client.inject:
        metadata["annotations"] = {INJECT: registration.client.inject}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }


def _common(registration: Registration, path: str) -> dict[str, Any]:
    return {
        "admissionReviewVersions": ["v1"],
        "clientConfig": registration.client.config(path),
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "matchPolicy": "Equivalent",
    }


def exempt(namespace: str) -> tuple[str, ...]:
    """Return the namespaces whose pods are never sent to Muster. namespace: its own."""
    return tuple(dict.fromkeys((*NEVER, namespace)))


def covers_all_pods(kind: str, configuration: Json, *, namespace: str, controller: str) -> bool:
    """Return whether a stored configuration sends every pod to Muster, and refuses the pod if Muster fails.

    The exempt namespaces are excepted. The client configuration and the timeout are not checked.
    """
    everywhere = LabelSelector()
    registration = Registration(
        client=ClientConfig(authority=b"", url="https://-"),
        selectors=(everywhere,),
        namespace=namespace,
        controller=controller,
    )
    name = f"queued-{digest(everywhere)}.pods.{names.GROUP}"
    encode = mutating if kind == "MutatingWebhookConfiguration" else validating
    found = next((webhook for webhook in configuration.get("webhooks") or () if webhook.get("name") == name), None)
    if found is None or found.get("objectSelector"):
        return False
    compared = ("rules", "matchConditions", "matchPolicy", "namespaceSelector", "failurePolicy")
    for known in (registration, replace(registration, policies=(everywhere,))):
        wanted = next(webhook for webhook in encode(known)["webhooks"] if webhook["name"] == name)
        if all(found.get(field) == wanted[field] for field in compared):
            return True
    return False


def _scope(name: str, selector: LabelSelector, namespace: str, plural: str = "pods") -> dict[str, Any]:
    not_exempt = Requirement(key="kubernetes.io/metadata.name", operator="NotIn", values=exempt(namespace))
    return {
        "name": f"{name}.{plural}.{names.GROUP}",
        "namespaceSelector": {"matchExpressions": [expression(r) for r in (*selector.requirements, not_exempt)]},
    }


def _path(kind: str) -> str:
    return f"/apis/{API_VERSION}/{KINDS[kind]}/{NAME}"
