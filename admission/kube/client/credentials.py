"""Where the API server is and who we are there: a kubeconfig, or the service account of the pod we run in."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from admission.errors import FixError
from admission.kube.client import client_library

DEFAULT_KUBECONFIG = "~/.kube/config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which cluster. Without a kubeconfig: $KUBECONFIG, else the pod's service account, else ~/.kube/config."""

    kubeconfig: Path | None = None
    context: str | None = None


async def load(place: Place) -> Any:
    """Read where and as whom to connect. Raises FixError that names what to fix."""
    # Files are read, and with `exec` credentials a program is run; in a thread of its own neither holds up our loop.
    return await asyncio.to_thread(lambda: asyncio.run(_load(place)))


async def _load(place: Place) -> Any:
    configuration = client_library.Configuration()
    source = _source(place)
    try:
        if source is None:
            client_library.config.load_incluster_config(client_configuration=configuration)
        else:
            await client_library.config.load_kube_config(
                config_file=source, context=place.context, client_configuration=configuration, persist_config=False
            )
    except Exception as error:
        # The loader raises what it happens to stumble over: ConfigException, KeyError, AssertionError, YAML errors.
        where = source or "the pod's service account"
        raise FixError(
            f"cannot read credentials from {where}: {type(error).__name__}: {error}; mend or replace it"
        ) from error
    return configuration


def _source(place: Place) -> str | None:
    """Return the kubeconfig's path, or a list of paths; None for the service account."""
    named = str(place.kubeconfig) if place.kubeconfig else os.environ.get("KUBECONFIG", "")
    if not named and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    paths = (named or DEFAULT_KUBECONFIG).split(os.pathsep)
    if not any(Path(path).expanduser().is_file() for path in paths if path):
        raise FixError(
            f"no kubeconfig at {named or DEFAULT_KUBECONFIG}: pass --kubeconfig, set KUBECONFIG, "
            "or run in a pod with a service account"
        )
    return os.pathsep.join(paths)
