"""The release of Kubernetes that the cluster runs, read periodically: the real `ports.Scheduler`.

The API server reports its release; kube-scheduler is assumed to be of the same one, which holds except for minutes
during an upgrade. Its feature gates cannot be read, and are assumed to have their defaults.
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
"""Seconds between two reads: an upgrade takes longer, and the answer is a few hundred bytes."""

_FRACTIONAL_RANGES = (1, 37)
"""The minimum compatibility version from which the gate DRAFractionalCapacityRange is on by default."""


class Versions:
    """The profile of the cluster's kube-scheduler. chosen: the operator's setting, which overrides what is read."""

    def __init__(self, chosen: SchedulerProfile | None = None) -> None:
        self._chosen = chosen
        self._detected: SchedulerProfile | None = None
        self._version: ServerVersions | None = None

    @property
    def profile(self) -> SchedulerProfile | None:
        """The profile to predict by; None for a version that cannot be predicted, or before the first read."""
        return self._chosen or self._detected

    async def probe(self, connection: Connection) -> None:
        """Read the version, and log the resulting profile when the version has changed."""
        version = await connection.versions()
        if version == self._version:
            return
        self._version, self._detected = version, _profile(version)
        self._log_version(version)

    async def keep(self, connection: Connection, *, every: float = CHECK_SECONDS) -> None:
        """Read the version periodically until cancelled. While there is no answer, the last one stays."""
        while True:
            await asyncio.sleep(every)
            try:
                await self.probe(connection)
            except MusterError as error:
                log.debug("the version of Kubernetes cannot be read", error=str(error))

    def _log_version(self, version: ServerVersions) -> None:
        if self.profile is None:
            log.warning(
                "Kubernetes is older than every release that this Muster knows, and nothing is predicted; gangs that "
                "need devices wait until Kubernetes is upgraded or controller.profile is set",
                oldest=str(compatibility.BY_VERSION[0]),
                version=str(version),
            )
        elif self.profile.mismatch:
            log.warning(
                "Kubernetes is newer than every release that this Muster knows; plans follow the newest one, and "
                "Muster gives no devices itself until it is upgraded or controller.profile is set",
                release=str(self.profile.release),
                version=str(version),
            )
        elif self._chosen not in (None, self._detected) and version.own != (1, self.profile.release.minor):
            log.warning(
                "controller.profile names another release than the API server is of",
                profile=str(self._chosen.release),
                version=str(version),
            )
        else:
            log.info("plans follow kube-scheduler", release=str(self.profile.release), version=str(version))


def _profile(version: ServerVersions) -> SchedulerProfile | None:
    found = compatibility.of_version(str(version))
    if found is None or version.min_compatible is None or version.min_compatible < _FRACTIONAL_RANGES:
        return found
    return replace(found, features=replace(found.features, fractional_ranges=True))
