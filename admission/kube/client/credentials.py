"""The address of the API server and the credentials for it: from a kubeconfig, or the pod's service account."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from admission.errors import FixError
from admission.kube.client import client_library

DEFAULT_KUBECONFIG = "~/.kube/config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSelection:
    """The cluster to use. Without a kubeconfig: $KUBECONFIG, else the pod's service account, else ~/.kube/config."""

    kubeconfig: Path | None = None
    context: str | None = None


async def load(selection: ClusterSelection) -> Any:
    """Return the library's configuration: address and credentials. Raises FixError, which names what to fix."""
    # In a thread with its own loop, since it reads files and, for `exec` credentials, runs a program.
    return await asyncio.to_thread(lambda: asyncio.run(_load(selection)))


async def _load(selection: ClusterSelection) -> Any:
    configuration = client_library.Configuration()
    source = _source(selection)
    try:
        if source is None:
            client_library.config.load_incluster_config(client_configuration=configuration)
        else:
            await client_library.config.load_kube_config(
                config_file=source, context=selection.context, client_configuration=configuration, persist_config=False
            )
    except Exception as error:
        # The loader raises errors of any kind: ConfigException, KeyError, AssertionError, YAML errors.
        where = source or "the pod's service account"
        raise FixError(
            f"cannot read credentials from {where}: {type(error).__name__}: {error}; mend or replace it"
        ) from error
    return configuration


def _source(selection: ClusterSelection) -> str | None:
    """Return the kubeconfig's path, or a list of paths; None for the service account."""
    configured = str(selection.kubeconfig) if selection.kubeconfig else os.environ.get("KUBECONFIG", "")
    if not configured and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    paths = (configured or DEFAULT_KUBECONFIG).split(os.pathsep)
    if not any(Path(path).expanduser().is_file() for path in paths if path):
        raise FixError(
            f"no kubeconfig at {configured or DEFAULT_KUBECONFIG}: pass --kubeconfig, set KUBECONFIG, "
            "or run in a pod with a service account"
        )
    return os.pathsep.join(paths)
