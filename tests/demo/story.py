"""The story: two teams, four gangs' worth of devices, and one admission controller between them.

`tell` acts, waits until the cluster shows what must follow, and shows it through Muster's own commands. What it saw at
each step is returned, so that the end-to-end test can say more about it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.controlplane import fleet
from tests.demo.serving import Muster
from tests.demo.stage import Json, Stage, documents, until
from tests.demo.telling import StoryError, Teller

GPUS = (4, 4, 4, 4, 4, 1)
VISION, LANGUAGE = "demo-vision", "demo-language"
PATIENCE = 90.0
"""Seconds for each thing to show; on an idle machine it takes one or two."""
DOOR_PATIENCE = 30.0
"""Seconds until the API server asks Muster's webhook, and gets an answer."""
MOST_MEBIBYTES = 150
PASSING = ("GangIncomplete", "WaitingForClaims")
"""Reasons that every gang has for a moment, while its pods and claims are being made."""


class DoorError(StoryError):
    """Pods are not held when they are created: the API server does not reach the webhook."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What was seen at the end of a step: gangs by Job, the pods of each Job, and the queues."""

    title: str
    gangs: dict[str, Json]
    pods: dict[str, list[Json]]
    queues: dict[str, Json]

    def phase(self, job: str) -> str:
        phase: str = self.gangs[job]["status"]["phase"]
        return phase

    def reason(self, job: str) -> str | None:
        hold = self.gangs[job]["status"].get("hold")
        return hold["reason"] if hold else None

    def nodes(self, job: str) -> list[str]:
        """Return the nodes of the Job's pods; empty texts for those not bound."""
        return sorted(pod["spec"].get("nodeName", "") for pod in self.pods[job])


@dataclass(slots=True)
class Story:
    """One telling."""

    stage: Stage
    muster: Muster
    teller: Teller
    scenes: list[Scene] = field(default_factory=list)
    mebibytes: float = 0.0

    async def tell(self) -> None:
        """Tell all of it. Raises StoryError where it does not go as it must."""
        await self._set_the_stage()
        await self._one_starts()
        await self._one_is_over_quota()
        await self._one_cannot_be_allocated_together()
        await self._the_first_ends()
        await self._the_books()

    async def _set_the_stage(self) -> None:
        self.teller.heading("Two teams share six nodes")
        await self.stage.put(fleet.demo_fleet(GPUS, prefix="demo-node"))
        await self._when("Muster's kinds are served", self._kinds_are_served)
        await self.stage.put(documents("10-teams.yaml"))
        try:
            await self._when("pods of both teams are held at the door", self._door_is_watched, within=DOOR_PATIENCE)
        except StoryError as error:
            raise DoorError(str(error)) from error
        self.teller.say(
            "Five nodes have four GPUs, the sixth has one left. Team vision may use 16 GPUs, team language 8;"
            " each may hold 10 claims."
        )
        await self._show("queue list")

    async def _one_starts(self) -> None:
        self.teller.heading("1. Team vision submits `pretrain`: 4 pods with 4 GPUs each. It fits and starts")
        await self.stage.put(documents("20-pretrain.yaml"))
        await self._until_running(VISION, "pretrain", pods=4)
        await self._until_used(VISION, 16)
        await self._see("starts", pretrain=VISION)
        await self._show("gang list", "queue list")

    async def _one_is_over_quota(self) -> None:
        self.teller.heading("2. Team vision submits `ablation`: 2 GPUs more. Five are free, but its quota is used up")
        await self.stage.put(documents("30-ablation.yaml"))
        await self._until_held(VISION, "ablation", "QuotaExceeded")
        await self._see("over quota", pretrain=VISION, ablation=VISION)
        await self._show(f"why {VISION}/ablation")

    async def _one_cannot_be_allocated_together(self) -> None:
        self.teller.heading("3. Team language submits `evaluate`: 2 pods with 3 GPUs each, inside its quota of 8")
        self.teller.say(
            "Free are four GPUs on one node and one on another: only one of the pods could start. So neither does, and"
            " no GPU is held by a gang that waits."
        )
        await self.stage.put(documents("40-evaluate.yaml"))
        await self._until_held(LANGUAGE, "evaluate", "DevicesBusy")
        await self._see("not together", pretrain=VISION, ablation=VISION, evaluate=LANGUAGE)
        if any(self.scenes[-1].nodes("evaluate")):
            raise StoryError("a pod of `evaluate` was bound although not all of them fit")
        await self._show(f"why {LANGUAGE}/evaluate", "queue list")

    async def _the_first_ends(self) -> None:
        self.teller.heading("4. `pretrain` ends. What waits is admitted, each gang as a whole")
        await self.stage.finish(VISION, "pretrain")
        await self._until_running(VISION, "ablation", pods=2)
        await self._until_running(LANGUAGE, "evaluate", pods=2)
        await self._until_used(VISION, 2)
        await self._until_used(LANGUAGE, 6)
        await self._until_finished(VISION, "pretrain")
        await self._see("admitted", pretrain=VISION, ablation=VISION, evaluate=LANGUAGE)
        await self._show("gang list", "queue list", f"why {LANGUAGE}/evaluate")

    async def _the_books(self) -> None:
        self.teller.heading("5. The ledger has it all, and proves it")
        await self._show(
            f"ledger statement --database {self.muster.database}", f"ledger verify --database {self.muster.database}"
        )
        self.mebibytes = self.muster.resident_mebibytes()
        self.teller.say(f"Muster has {self.mebibytes:.0f} MiB of memory in use (the goal is below {MOST_MEBIBYTES}).")

    async def _show(self, *commands: str) -> None:
        """Run commands side by side, and show them one after the other."""
        env = {"KUBECONFIG": self.stage.kubeconfig}
        await self.teller.run(*commands, env=env)

    async def _see(self, title: str, **jobs: str) -> None:
        gangs = {job: await self.stage.gang(namespace, job) or {} for job, namespace in jobs.items()}
        pods = {job: await self.stage.pods(namespace, job) for job, namespace in jobs.items()}
        queues = {name: await self.stage.queue(name) for name in (VISION, LANGUAGE)}
        self.scenes.append(Scene(title, gangs, pods, queues))

    async def _when(self, what: str, look: Callable[[], Awaitable[bool]], *, within: float = PATIENCE) -> None:
        await until(look, what=what, within=within, check=self.muster.check)

    async def _kinds_are_served(self) -> bool:
        paths = ("queues", "meters", "gangs", "claimpolicies")
        get = self.stage.connection.get
        await asyncio.gather(*(get(f"/apis/muster.dev/v1alpha1/{path}") for path in paths))
        return True

    async def _door_is_watched(self) -> bool:
        return all(await asyncio.gather(*(self.stage.is_gated(namespace) for namespace in (VISION, LANGUAGE))))

    async def _until_running(self, namespace: str, job: str, *, pods: int) -> None:
        async def look() -> bool:
            found = await self.stage.pods(namespace, job)
            running = [pod for pod in found if pod["status"].get("phase") == "Running"]
            gang = await self.stage.gang(namespace, job)
            return len(running) == pods and (gang or {}).get("status", {}).get("phase") == "Running"

        await self._when(f"all {pods} pods of {job} run", look)

    async def _until_finished(self, namespace: str, job: str) -> None:
        async def look() -> bool:
            gang = await self.stage.gang(namespace, job)
            return bool((gang or {}).get("status", {}).get("phase") == "Finished")

        await self._when(f"{job} has finished", look)

    async def _until_used(self, queue: str, gpus: int) -> None:
        """Wait for the books: what was granted is settled, and what has ended is released."""

        async def look() -> bool:
            meters = (await self.stage.queue(queue)).get("status", {}).get("meters", [])
            return any(
                use["meter"] == "demo-gpus" and (use["used"], use["reserved"]) == (str(gpus), "0") for use in meters
            )

        await self._when(f"queue {queue} uses {gpus} GPUs", look)

    async def _until_held(self, namespace: str, job: str, reason: str) -> None:
        async def look() -> bool:
            gang = await self.stage.gang(namespace, job)
            hold = (gang or {}).get("status", {}).get("hold", {})
            if hold.get("reason", reason) not in (reason, *PASSING):
                raise StoryError(f"{job} is held for another reason than {reason}: {json.dumps(hold)}")
            return bool(hold.get("reason") == reason)

        await self._when(f"{job} is held for {reason}", look)
