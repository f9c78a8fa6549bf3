"""Keeps the ResourceClaimTemplates of ClaimPolicies true: the real `flow.ports.Templates`.

What has to be done is planned by `claimpolicy.templates`. A spec cannot be changed, so a template that says other
things is deleted and created. In between there is none: pods that come just then get their claims a moment later.
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
"""How long a template for converted pods stays when there are none of them. Claims outlive their template, and the next
such pod has it made again: it only saves the work of making it for every run of a Job."""

AGAIN_SECONDS = 30.0
"""After how long it is tried again to write what the API server has refused, and looked for what is idle."""

GATHER_SECONDS = 0.1
"""How long changes are gathered before it is looked at them."""

WRITES = 8
"""At a time."""

ROOT = "/apis/resource.k8s.io/v1"


class TemplateKeeper:
    """Keeps templates while `run` runs. spared: namespaces in which none are made. clock: seconds that only grow."""

    def __init__(
        self,
        connection: Connection,
        store: Store,
        *,
        spared: Iterable[str] = (),
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._connection = connection
        self._store = store
        self._spared = tuple(spared)
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._policies: Policies | None = None
        self._refused: dict[str, tuple[DesiredTemplate, str, float]] = {}
        """What the API server did not take, by key: why, and until when it is not asked again."""
        self._idle: dict[str, float] = {}
        """Since when templates of converted pods are not used, by UID."""
        self._kept: dict[Uid, float] = {}
        """When templates that may not be deleted are tried again."""
        self._troubles: Mapping[str, tuple[str, ...]] = {}

    def troubles(self) -> Mapping[str, tuple[str, ...]]:
        """Return which templates are not as the policies want them, and why, by the name of the policy."""
        return self._troubles

    async def run(self, *, wake: Callable[[], None] = lambda: None) -> None:
        """Keep the templates until cancelled. The store must be synced. wake: called when `troubles` has changed."""
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
                        await self._news(changed)
                await asyncio.sleep(GATHER_SECONDS)

    async def _news(self, changed: Subscription) -> None:
        """Wait for a change of what templates depend on: pods only matter where their resources become claims."""
        while True:
            changes = await changed.next()
            if changes.keys() != {watched_resources.PODS} or (
                self._policies is not None and self._policies.has_conversions
            ):
                return

    async def keep(self) -> None:
        """Do once what has to be done now. Raises RetryError when some of it may succeed later."""
        snapshot = self._store.snapshot()
        self._policies = Policies.build(snapshot.policies, snapshot.namespaces, self._policies)
        if not self._policies.compiled:
            self._refused, self._idle, self._troubles = {}, {}, {}
            return
        plan = templates.plan(self._policies, snapshot, excluded=self._spared)
        self._forget(plan)
        left = {found.meta.uid for found in (*plan.surplus, *plan.idle)}
        self._kept = {uid: at for uid, at in self._kept.items() if uid in left}
        try:
            await self._write(plan)
        finally:
            logged = ((one, why) for one, why, _ in self._refused.values() if one.recipe is None)
            self._troubles = templates.problem_messages(plan, logged)

    def _forget(self, plan: Plan) -> None:
        """Forget of what was refused whatever is not wanted any more, or is wanted otherwise."""
        marks = {one.key: one.annotation for one in (*plan.missing, *(one for one, _ in plan.outdated))}
        self._refused = {key: known for key, known in self._refused.items() if marks.get(key) == known[0].annotation}

    async def _write(self, plan: Plan) -> None:
        now = self._clock()
        limit = asyncio.Semaphore(WRITES)
        later: list[RetryError] = []

        async def run(write: Awaitable[None]) -> None:
            async with limit:
                try:
                    await write
                except RetryError as error:
                    later.append(error)

        async with asyncio.TaskGroup() as tasks:
            for one in plan.missing:
                tasks.create_task(run(self._made(one, None, now)), name=f"make {one.key}")
            for one, found in plan.outdated:
                tasks.create_task(run(self._made(one, found, now)), name=f"make {one.key} anew")
            for found in (*plan.surplus, *self._aged(plan.idle, now)):
                tasks.create_task(run(self._cleared(found, now)), name=f"remove {found.meta.key}")
        if later:
            raise later[0]

    async def _made(self, wanted: DesiredTemplate, instead: ClaimTemplate | None, now: float) -> None:
        """Create a template, in the place of another one. Harmless when somebody was faster."""
        known = self._refused.get(wanted.key)
        if known is not None and now < known[2]:
            return
        path = paths.within(ROOT, wanted.namespace, "resourceclaimtemplates")
        body = wanted.body()
        try:
            if instead is not None:
                # Nothing is taken away that could not be put back.
                trial = Request(method="POST", path=path, params={"dryRun": "All"}, body=_renamed(body))
                await self._connection.send(trial)
                await self._removed(instead)
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
            log.info("the claim template is made", template=wanted.key, anew=instead is not None)

    def _aged(self, idle: Iterable[ClaimTemplate], now: float) -> list[ClaimTemplate]:
        """Return which of the templates that nobody uses have been so for long."""
        by_uid = {str(found.meta.uid): found for found in idle}
        self._idle = {uid: self._idle.get(uid, now) for uid in by_uid}
        return [by_uid[uid] for uid, since in self._idle.items() if now - since >= IDLE_SECONDS]

    async def _removed(self, found: ClaimTemplate) -> None:
        """Delete this very template. Harmless when it is gone, or another one has its name."""
        path = paths.within(ROOT, found.meta.namespace, "resourceclaimtemplates", found.meta.name)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": found.meta.uid}}
        with contextlib.suppress(GoneError, ConflictError):
            await self._connection.delete(path, options)
            log.info("the claim template is removed", template=found.meta.key)

    async def _cleared(self, found: ClaimTemplate, now: float) -> None:
        """Delete a template that is not wanted any more; one that may not be stays, and is tried again later."""
        if now < self._kept.get(found.meta.uid, 0.0):
            return
        try:
            await self._removed(found)
        except FixError as error:
            log.warning("a claim template may not be deleted", template=found.meta.key, error=str(error))
            self._kept[found.meta.uid] = now + AGAIN_SECONDS


def _renamed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a template under a name that nobody has, to be tried while the other one stands."""
    kept = {key: value for key, value in body["metadata"].items() if key != "name"}
    return {**body, "metadata": {**kept, "generateName": "muster-probe-"}}
