"""Reconciles the ResourceClaimTemplates of ClaimPolicies: the real `ports.Templates`.

`claimpolicy.templates` plans the writes. A template's spec is immutable, so a template that differs is deleted and
created again. Pods that are created in between get their claims a moment later.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import structlog

from admission.api.kubernetes.claims import ClaimTemplate
from admission.api.values.names import Uid
from admission.claimpolicy import templates
from admission.claimpolicy.match import Policies
from admission.claimpolicy.templates import DesiredTemplate, Plan
from admission.errors import ConflictError, FixError, GoneError, RetryError
from admission.kube.cache import watched_resources
from admission.kube.cache.store import Store, Subscription
from admission.kube.client import backoff, paths
from admission.kube.client.connection import Connection, Request
from admission.kube.client.errors import ExistsError

log = structlog.get_logger(__name__)

IDLE_SECONDS = 3600.0
"""How long a template for converted pods stays unused. Claims outlive their template, and the next such pod has it
created again, so this only avoids creating it for every run of a Job."""

AGAIN_SECONDS = 30.0
"""Seconds until a refused write is retried, and between two searches for idle templates."""

GATHER_SECONDS = 0.1
"""How long changes are gathered before they are processed."""

WRITES = 8
"""Concurrent writes."""

ROOT = "/apis/resource.k8s.io/v1"


class TemplateReconciler:
    """Keeps templates while `run` runs. exempt: namespaces without templates. clock: monotonic seconds."""

    def __init__(
        self,
        connection: Connection,
        store: Store,
        *,
        exempt: Iterable[str] = (),
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._connection = connection
        self._store = store
        self._exempt = tuple(exempt)
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._policies: Policies | None = None
        self._refused: dict[str, tuple[DesiredTemplate, str, float]] = {}
        """The templates that the API server refused, by key: with the reason and the time of the next try."""
        self._idle: dict[str, float] = {}
        """Since when templates of converted pods have been unused, by UID."""
        self._delete_again_at: dict[Uid, float] = {}
        """When the deletion of a template is tried again that the API server refused, by UID."""
        self._troubles: Mapping[str, tuple[str, ...]] = {}

    def troubles(self) -> Mapping[str, tuple[str, ...]]:
        """Return the problems of templates that differ from what the policies want, by the name of the policy."""
        return self._troubles

    async def run(self, *, wake: Callable[[], None] = lambda: None) -> None:
        """Reconcile the templates until cancelled. The store must be synced. wake: called when `troubles` changed."""
        failed = 0
        watched = (
            watched_resources.POLICIES,
            watched_resources.NAMESPACES,
            watched_resources.QUEUES,
            watched_resources.TEMPLATES,
            watched_resources.PODS,
        )
        with self._store.subscribe(*watched) as changed:
            while True:
                before = self._troubles
                try:
                    await self.keep()
                except RetryError as error:
                    failed += 1
                    log.warning("claim templates are written again in a moment", error=str(error))
                    await asyncio.sleep(backoff.backoff(failed, base=0.5, longest=AGAIN_SECONDS))
                    continue
                failed = 0
                if self._troubles != before:
                    wake()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await self._relevant_change(changed)
                await asyncio.sleep(GATHER_SECONDS)

    async def _relevant_change(self, changed: Subscription) -> None:
        """Wait for a change that may affect templates; pods do only if a policy converts resources to claims."""
        while True:
            changes = await changed.next()
            if changes.keys() != {watched_resources.PODS} or (
                self._policies is not None and self._policies.has_conversions
            ):
                return

    async def keep(self) -> None:
        """Reconcile once. Raises RetryError when a write failed that may succeed later."""
        snapshot = self._store.snapshot()
        self._policies = Policies.build(snapshot.policies, snapshot.namespaces, self._policies)
        if not self._policies.compiled:
            self._refused, self._idle, self._troubles = {}, {}, {}
            return
        plan = templates.plan(self._policies, snapshot, excluded=self._exempt)
        self._forget(plan)
        remaining = {template.meta.uid for template in (*plan.surplus, *plan.idle)}
        self._delete_again_at = {uid: time for uid, time in self._delete_again_at.items() if uid in remaining}
        try:
            await self._write(plan)
        finally:
            logged = ((one, why) for one, why, _ in self._refused.values() if one.recipe is None)
            self._troubles = templates.problem_messages(plan, logged)

    def _forget(self, plan: Plan) -> None:
        """Forget refusals of templates that are no longer wanted, or are wanted with another content."""
        marks = {one.key: one.annotation for one in (*plan.missing, *(one for one, _ in plan.outdated))}
        self._refused = {key: known for key, known in self._refused.items() if marks.get(key) == known[0].annotation}

    async def _write(self, plan: Plan) -> None:
        now = self._clock()
        limit = asyncio.Semaphore(WRITES)
        retryable: list[RetryError] = []

        async def run(write: Awaitable[None]) -> None:
            async with limit:
                try:
                    await write
                except RetryError as error:
                    retryable.append(error)

        async with asyncio.TaskGroup() as tasks:
            for desired in plan.missing:
                tasks.create_task(run(self._create(desired, None, now)), name=f"make {desired.key}")
            for desired, template in plan.outdated:
                tasks.create_task(run(self._create(desired, template, now)), name=f"make {desired.key} anew")
            for template in (*plan.surplus, *self._idle_too_long(plan.idle, now)):
                tasks.create_task(run(self._delete_unwanted(template, now)), name=f"remove {template.meta.key}")
        if retryable:
            raise retryable[0]

    async def _create(self, wanted: DesiredTemplate, replaced: ClaimTemplate | None, now: float) -> None:
        """Create a template, deleting `replaced` before. A no-op when another client has created it."""
        refusal = self._refused.get(wanted.key)
        if refusal is not None and now < refusal[2]:
            return
        path = paths.within(ROOT, wanted.namespace, "resourceclaimtemplates")
        body = wanted.body()
        try:
            if replaced is not None:
                # A dry run before the deletion: the old template stays if the new one would be refused.
                dry_run = Request(method="POST", path=path, params={"dryRun": "All"}, body=_renamed(body))
                await self._connection.send(dry_run)
                await self._delete(replaced)
            await self._connection.post(path, body)
        except ExistsError:
            log.debug("the template is there already", template=wanted.key)
        except GoneError:
            log.debug("the namespace is going", namespace=wanted.namespace)
        except FixError as error:
            log.warning("the API server refuses a claim template", template=wanted.key, error=str(error))
            self._refused[wanted.key] = wanted, str(error), now + AGAIN_SECONDS
        else:
            self._refused.pop(wanted.key, None)
            log.info("the claim template is made", template=wanted.key, anew=replaced is not None)

    def _idle_too_long(self, idle: Iterable[ClaimTemplate], now: float) -> list[ClaimTemplate]:
        """Return the templates that have been unused for IDLE_SECONDS."""
        by_uid = {str(template.meta.uid): template for template in idle}
        self._idle = {uid: self._idle.get(uid, now) for uid in by_uid}
        return [by_uid[uid] for uid, since in self._idle.items() if now - since >= IDLE_SECONDS]

    async def _delete(self, template: ClaimTemplate) -> None:
        """Delete exactly this template. A no-op when it is gone, or another one has its name."""
        path = paths.within(ROOT, template.meta.namespace, "resourceclaimtemplates", template.meta.name)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": template.meta.uid}}
        with contextlib.suppress(GoneError, ConflictError):
            await self._connection.delete(path, options)
            log.info("the claim template is removed", template=template.meta.key)

    async def _delete_unwanted(self, template: ClaimTemplate, now: float) -> None:
        """Delete a template that is no longer wanted; if that is refused, try again later."""
        if now < self._delete_again_at.get(template.meta.uid, 0.0):
            return
        try:
            await self._delete(template)
        except FixError as error:
            log.warning("a claim template may not be deleted", template=template.meta.key, error=str(error))
            self._delete_again_at[template.meta.uid] = now + AGAIN_SECONDS


def _renamed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a template with a generated name, for a dry run while the old one exists."""
    kept = {key: value for key, value in body["metadata"].items() if key != "name"}
    return {**body, "metadata": {**kept, "generateName": "muster-probe-"}}
