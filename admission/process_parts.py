"""The parts of a process that its roles share."""

import asyncio
from dataclasses import dataclass, field

from admission.kube.cache.store import Store
from admission.kube.client.connection import Connection
from admission.kube.server_version import Versions
from admission.registration_app import Registrar
from admission.settings import Settings
from admission.settings.live import LiveSettings
from admission.telemetry.metrics import Metrics
from admission.telemetry.tracing import Traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that a controller uses; `app` has more for the webhook."""

    live: LiveSettings
    connection: Connection
    store: Store
    versions: Versions
    metrics: Metrics
    traces: Traces | None
    """None if nothing is traced."""
    user: str
    """The user name of this process at the API server."""
    registrar: Registrar
    ledger_opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the ledger was opened."""

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self.live.now
