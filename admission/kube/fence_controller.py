"""Keeps the fences and the policies that enforce them, and reports their state: the real `ports.Fences`.

A fence is a DeviceTaintRule on all devices of a driver, and a ValidatingAdmissionPolicy with its binding that refuses
claims which tolerate it. If the settings ask for coverage, another policy keeps claims out of the namespaces that the
webhook does not see, and the webhook's registration is checked. All these objects are watched, and written again when
they differ. Dry runs of claims that must be refused prove that the API server enforces the policies.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from admission.api.kubernetes import device_taint_rules
from admission.api.kubernetes.device_taint_rules import TaintRule
from admission.api.values.decoding import Json
from admission.errors import FixError, GoneError, MusterError, RetryError
from admission.kube import admission_policies, desired_state
from admission.kube.cache import reflector
from admission.kube.cache.store import Store, Subscription
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import backoff, errors, paths
from admission.kube.client.connection import Connection, Request
from admission.kube.desired_state import Identity, Objects
from admission.kube.webhook_config import registration
from admission.scheduling.placement.protection import SETTLING, Barriers, Webhooks

log = structlog.get_logger(__name__)

CHECK_SECONDS = 30.0
"""Seconds between two proofs that a policy is enforced, and two checks whether DeviceTaintRules are served."""

LEFTOVERS_SECONDS = 600.0
"""Longest pause between tries to remove earlier fences that the settings no longer ask for."""

AGAIN_SECONDS = 0.5
"""Seconds until a new policy that is not enforced yet is tried again."""

SYNC_SECONDS = 10.0
"""Seconds after which an incomplete list is reported as a trouble."""

VERSIONS = ("v1", "v1beta2")
"""Versions of DeviceTaintRule in which a fence may be written, the best first."""

_REGISTRATION = "admissionregistration.k8s.io"
RULES = desired_state.kind("DeviceTaintRule", "resource.k8s.io", "devicetaintrules", "v1beta2", optional=True)
POLICIES = desired_state.kind("ValidatingAdmissionPolicy", _REGISTRATION, "validatingadmissionpolicies")
BINDINGS = desired_state.kind("ValidatingAdmissionPolicyBinding", _REGISTRATION, "validatingadmissionpolicybindings")
MUTATING = desired_state.kind("MutatingWebhookConfiguration", _REGISTRATION, "mutatingwebhookconfigurations")
VALIDATING = desired_state.kind("ValidatingWebhookConfiguration", _REGISTRATION, "validatingwebhookconfigurations")
KINDS = (RULES, POLICIES, BINDINGS, MUTATING, VALIDATING)


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceSettings:
    """The settings on fences. fence: drivers; namespace: Muster's own; controller: the name of its user."""

    namespace: str
    controller: str
    fence: tuple[str, ...] = ()
    coverage: bool = False

    @property
    def any(self) -> bool:
        return bool(self.fence) or self.coverage

    @property
    def exempt(self) -> tuple[str, ...]:
        """Return the namespaces whose pods the webhook does not see."""
        return registration.exempt(self.namespace)

    def policies(self) -> Iterator[tuple[str, Json]]:
        """Yield the policies to keep, by name."""
        if self.fence:
            yield admission_policies.FENCE, admission_policies.fence()
        if self.coverage:
            yield admission_policies.COVERAGE, admission_policies.coverage(self.exempt)


class _Proof(NamedTuple):
    """A proof that a policy was enforced. identities: of the policy and binding then; at: by the event loop's clock."""

    identities: tuple[Identity, Identity]
    at: float


class _NotYetError(RetryError):
    """A policy that was created a moment ago is not enforced yet, which is expected."""


class FenceController:
    """Keeps fences while `run` runs. clock: the same as that of the cycles, which call `observe`."""

    def __init__(
        self,
        connection: Connection,
        settings: FenceSettings,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        kinds = KINDS if settings.coverage else (RULES, POLICIES, BINDINGS)
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._objects = Objects(connection, kinds, clock)
        self._version: str | None = None
        """The version in which rules are written; None where none is served, or before the first check."""
        self._checked = False
        self._wanted: frozenset[str] | None = None
        """None until `set_drivers` is called with a synced store. Until then an earlier leader's fences of drivers in
        the settings stay, and no new fence is created."""
        self._changes: Subscription | None = None
        self._proofs: dict[str, _Proof] = {}
        self._trouble = ""
        self._trouble_since: datetime | None = None

    @property
    def store(self) -> Store:
        """The store of the watched objects, for subscriptions to their changes."""
        return self._objects.store

    # The port.

    def observe(self) -> Barriers:
        """Return the present state of the fences."""
        if not self._settings.any:
            return Barriers()
        trouble = self._trouble or "; ".join(f"{kind}: {why}" for kind, why in self.store.troubles().items())
        self._trouble_since = (self._trouble_since or self._clock()) if trouble else None
        rules = {driver: self._rule(driver) for driver in self._settings.fence}
        return Barriers(
            fence=self._settings.fence,
            served=self._version is not None or not self._checked,
            rules={driver: since for driver, since in rules.items() if since is not None},
            policy=self._policy(admission_policies.FENCE),
            webhooks=self._webhooks() if self._settings.coverage else None,
            trouble=trouble,
            troubled=self._trouble_since,
        )

    def set_drivers(self, drivers: frozenset[str]) -> None:
        """Keep the fences of exactly these drivers from now on. Ignored until the store is synced."""
        if self.store.synced and drivers != self._wanted:
            self._wanted = drivers
            if self._changes is not None:
                self._changes.wake()

    def _rule(self, driver: str) -> datetime | None:
        """Return since when a driver's rule has existed with the wanted spec; None if it does not."""
        return self._since_as_specified(RULES, device_taint_rules.fence_name(driver), rule(driver))

    def _policy(self, name: str) -> datetime | None:
        """Return since when a policy and its binding have existed as wanted and enforced; None if they are not."""
        wanted = dict(self._settings.policies()).get(name)
        if wanted is None:
            return None
        policy = self._since_as_specified(POLICIES, name, wanted)
        binding = self._since_as_specified(BINDINGS, name, admission_policies.binding(name))
        proof = self._proofs.get(name)
        if policy is None or binding is None or proof is None or proof.identities != self._identities(name):
            return None
        return max(policy, binding)

    def _webhooks(self) -> Webhooks:
        found = [
            self._objects.since(kind, registration.NAME)
            for kind in (MUTATING, VALIDATING)
            if (configuration := self._objects.find(kind, registration.NAME)) is not None
            and self._covers_all_pods(kind, configuration.body)
        ]
        # Both configurations are required: one adds the gate, the other refuses pods that lack it.
        times = [since for since in found if since is not None]
        return Webhooks(
            since=max(times) if len(times) == 2 else None,
            exempt=self._settings.exempt,
            kept_out=self._policy(admission_policies.COVERAGE),
        )

    def _covers_all_pods(self, kind: Kind, body: Json) -> bool:
        settings = self._settings
        return registration.covers_all_pods(
            kind.name, body, namespace=settings.namespace, controller=settings.controller
        )

    def _since_as_specified(self, kind: Kind, name: str, spec: Json) -> datetime | None:
        found = self._objects.find(kind, name)
        return (
            None if found is None or not desired_state.has_spec(found.body, spec) else self._objects.since(kind, name)
        )

    def _identities(self, name: str) -> tuple[Identity, Identity] | None:
        """Return the identities of a policy and its binding; None unless both exist."""
        policy, binding = self._objects.find(POLICIES, name), self._objects.find(BINDINGS, name)
        return None if policy is None or binding is None else (policy.identity, binding.identity)

    # The loops that keep the objects.

    async def run(self) -> None:
        """Keep the wanted objects until cancelled; if the settings want none, remove those of an earlier Muster."""
        if not self._settings.any:
            await self._remove_leftovers()
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reflector.watch(self._connection, self.store), name="watch the fences")
            tasks.create_task(self._reconcile_until_cancelled(), name="keep the fences")

    async def _remove_leftovers(self) -> None:
        failed = 0
        while True:
            try:
                for removed in await lift(self._connection):
                    log.info("removed, since the settings do not ask for it", object=removed)
            except MusterError as error:
                failed += 1
                if str(error) != self._trouble:
                    log.warning("what may be left of earlier fences is not removed yet", error=str(error))
                self._trouble = str(error)
                await asyncio.sleep(backoff.backoff(failed, base=1.0, longest=LEFTOVERS_SECONDS))
            else:
                return

    async def _reconcile_until_cancelled(self) -> None:
        failed = 0
        with self.store.subscribe() as changes:
            self._changes = changes
            while True:
                pause = CHECK_SECONDS
                try:
                    await self._reconcile()
                except _NotYetError:
                    pause = AGAIN_SECONDS
                except MusterError as error:
                    failed += 1
                    pause = backoff.backoff(failed, base=0.2, longest=CHECK_SECONDS)
                    if str(error) != self._trouble:
                        log.warning("the fences are not as they should be; it is tried again", error=str(error))
                    self._trouble = str(error)
                else:
                    failed, self._trouble = 0, ""
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await changes.next()

    async def _reconcile(self) -> None:
        """Write the objects that differ: policies before rules, so that no fence exists without its policy."""
        await self.store.wait_synced(SYNC_SECONDS)
        if self._version is None:
            self._version, self._checked = await served(self._connection), True
        if self._version is not None:
            drivers = self._settings.fence if self._wanted is None else self._wanted
            for name in self._fence_names() - set(map(device_taint_rules.fence_name, drivers)):
                await self._objects.remove(RULES, name, version=self._version)
        await self._keep_policies()
        if self._version is not None:
            for driver in sorted(self._wanted or ()):
                await self._put_rule(driver, self._version)

    async def _put_rule(self, driver: str, version: str) -> None:
        try:
            await self._objects.put(RULES, device_taint_rules.fence_name(driver), rule(driver), version=version)
        except errors.AbsentEndpointError:
            self._version = None  # another release may serve another version: check again
            raise

    async def _keep_policies(self) -> None:
        wanted = dict(self._settings.policies())
        for name in (admission_policies.FENCE, admission_policies.COVERAGE):
            if name not in wanted:
                await self._objects.remove(BINDINGS, name)
                await self._objects.remove(POLICIES, name)
        for name, spec in wanted.items():
            await self._objects.put(POLICIES, name, spec)
            await self._objects.put(BINDINGS, name, admission_policies.binding(name))
        for name in wanted:
            await self._prove(name)

    async def _prove(self, name: str) -> None:
        """Prove that a policy is enforced in its present form. Raises RetryError while it is not."""
        identities, now = self._identities(name), asyncio.get_running_loop().time()
        proof = self._proofs.get(name)
        if identities is None or (
            proof is not None and proof.identities == identities and now - proof.at < CHECK_SECONDS
        ):
            return
        path = paths.within("/apis/resource.k8s.io/v1", self._settings.namespace, "resourceclaims")
        request = Request(method="POST", path=path, params={"dryRun": "All"}, body=admission_policies.probe(name))
        try:
            await self._connection.send(request)
        except FixError as error:
            # Where both policies exist, the refusal may name either.
            if not any(
                f"'{policy}'" in str(error) for policy in (admission_policies.FENCE, admission_policies.COVERAGE)
            ):
                raise
            self._proofs[name] = _Proof(identities, now)
        else:
            self._proofs.pop(name, None)
            self._raise_if_new(name)
            raise RetryError(
                f"the API server lets a claim through that ValidatingAdmissionPolicy {name} refuses; should that last,"
                " switch on its admission plugin ValidatingAdmissionPolicy"
            )

    def _raise_if_new(self, name: str) -> None:
        """Raise _NotYetError for a policy that was created a moment ago: an API server enforces it within seconds."""
        since = self._objects.since(BINDINGS, name)
        if since is not None and self._clock() - since < SETTLING:
            raise _NotYetError(f"ValidatingAdmissionPolicy {name} is not heeded yet")

    def _fence_names(self) -> set[str]:
        """Return the names of the rules that are fences."""
        rules = self._objects.all(RULES)
        return {
            name
            for name, kept in rules.items()
            if device_taint_rules.fenced_driver(device_taint_rules.decode(kept.body)) is not None
        }


def rule(driver: str) -> Json:
    """Return the spec of a driver's fence."""
    fence = device_taint_rules.FENCE
    taint = {"key": fence.key, "value": fence.value, "effect": fence.effect}
    return {"deviceSelector": {"driver": driver}, "taint": taint}


async def served(connection: Connection) -> str | None:
    """Return the version in which the API server serves DeviceTaintRules for fences; None where it serves none."""
    for version in VERSIONS:
        with contextlib.suppress(errors.AbsentEndpointError):
            await connection.get(desired_state.collection(RULES, version), {"limit": 1})
            return version
    return None


class ClusterFences(NamedTuple):
    """The fences of a cluster as driver and time of creation, and the names of the policies that are bound."""

    fences: list[tuple[str, datetime]]
    policies: list[str]


async def cluster_fences(connection: Connection) -> ClusterFences:
    """Return the present fences and bound policies of the cluster, from any process."""
    bindings = (await connection.get(desired_state.collection(BINDINGS, BINDINGS.version))).get("items") or ()
    bound = {item["metadata"]["name"] for item in bindings}
    fences = await _fence_rules(connection, await served(connection))
    listed = sorted((driver, rule.meta.created) for driver, rule in fences.items())
    return ClusterFences(
        listed, [name for name in (admission_policies.FENCE, admission_policies.COVERAGE) if name in bound]
    )


async def lift(connection: Connection, drivers: Collection[str] = ()) -> list[str]:
    """Remove the fences of these drivers; if none is named, all fences and their policies.

    Return the removed objects. A leader whose settings ask for them creates them again.
    """
    removed: list[str] = []
    version = await served(connection)
    for driver in await _fence_rules(connection, version):
        if not drivers or driver in drivers:
            removed += await _delete(connection, RULES, version or RULES.version, device_taint_rules.fence_name(driver))
    if not drivers:
        for kind in (BINDINGS, POLICIES):
            for name in (admission_policies.FENCE, admission_policies.COVERAGE):
                removed += await _delete(connection, kind, kind.version, name)
    return removed


async def _fence_rules(connection: Connection, version: str | None) -> dict[str, TaintRule]:
    """Return the rules that are fences by driver; none where no version is served."""
    if version is None:
        return {}
    items = (await connection.get(desired_state.collection(RULES, version))).get("items") or ()
    rules = map(device_taint_rules.decode, items)
    return {driver: rule for rule in rules if (driver := device_taint_rules.fenced_driver(rule)) is not None}


async def _delete(connection: Connection, kind: Kind, version: str, name: str) -> list[str]:
    try:
        await connection.delete(paths.join(desired_state.collection(kind, version), name))
    except GoneError:
        return []
    return [f"{kind.name} {name}"]
