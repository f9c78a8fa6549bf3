"""Which release of Kubernetes the cluster runs, looked at again and again: the real `flow.ports.Scheduler`.

The API server is asked; kube-scheduler is taken for one of the same release, as it is but for the minutes of an
upgrade. Its feature gates cannot be seen, and are taken for the defaults.
"""

import asyncio
from dataclasses import replace

import structlog

from admission.dra import compatibility
from admission.dra.compatibility import SchedulerProfile
from admission.errors import MusterError
from admission.kube.client.connection import Connection, ServerVersions

log = structlog.get_logger(__name__)

CHECK_SECONDS = 30.0
"""Between two looks: upgrading takes longer, and the answer is a few hundred bytes."""

_FRACTIONAL_RANGES = (1, 37)
"""From this minimum compatibility version on the gate DRAFractionalCapacityRange is on by default."""


class Versions:
    """What the cluster's kube-scheduler decides like. chosen: what the operator says it is, whatever is seen."""

    def __init__(self, chosen: SchedulerProfile | None = None) -> None:
        self._chosen = chosen
        self._seen: SchedulerProfile | None = None
        self._version: ServerVersions | None = None

    @property
    def profile(self) -> SchedulerProfile | None:
        """The profile to decide by; None for a version that nothing is predicted for, or while none was seen."""
        return self._chosen or self._seen

    async def probe(self, connection: Connection) -> None:
        """Ask for the version, and say what follows from it when it is another one than before."""
        version = await connection.versions()
        if version == self._version:
            return
        self._version, self._seen = version, _profile(version)
        self._log_version(version)

    async def keep(self, connection: Connection, *, every: float = CHECK_SECONDS) -> None:
        """Look again until cancelled. While there is no answer, what was seen last stays."""
        while True:
            await asyncio.sleep(every)
            try:
                await self.probe(connection)
            except MusterError as error:
                log.debug("the version of Kubernetes cannot be read", error=str(error))

    def _log_version(self, version: ServerVersions) -> None:
        if self.profile is None:
            log.warning(
                "before Kubernetes 1.36 kube-scheduler picks devices in random order, and nothing is predicted; gangs "
                "that need devices wait until Kubernetes is upgraded or controller.profile is set",
                version=str(version),
            )
        elif self._chosen is not None and self._seen != self._chosen:
            log.warning(
                "controller.profile names another release than the API server is of",
                profile=str(self._chosen.release),
                version=str(version),
            )
        else:
            log.info("plans follow kube-scheduler", release=str(self.profile.release), version=str(version))


def _profile(version: ServerVersions) -> SchedulerProfile | None:
    found = compatibility.of_version(str(version))
    if found is None or version.compatible is None or version.compatible < _FRACTIONAL_RANGES:
        return found
    return replace(found, features=replace(found.features, fractional_ranges=True))
