"""Installation of the CRDs: applies them from YAML, then waits until the API server serves them."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import structlog
import yaml

from admission.errors import ClusterUnavailableError, FixError
from admission.kube.client.connection import Connection

log = structlog.get_logger(__name__)

COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLL_SECONDS = 0.2

LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader where it is installed: parsing the 100 KB of CRDs in Python takes 0.3 s of a start."""


async def install(connection: Connection, paths: Iterable[Path], *, within: float = 30.0) -> None:
    """Create or update every CRD of these files.

    Raises FixError when one is refused, ClusterUnavailableError when one is not served after `within` seconds.
    """
    definitions = await asyncio.to_thread(_read, tuple(paths))
    await asyncio.gather(*(connection.apply(_path(definition), definition) for definition in definitions))
    try:
        async with asyncio.timeout(within):
            await asyncio.gather(*(_established(connection, definition) for definition in definitions))
    except TimeoutError:
        names = ", ".join(definition["metadata"]["name"] for definition in definitions)
        raise ClusterUnavailableError(f"after {within} s not all of these are established: {names}") from None
    log.info("the CRDs are installed", count=len(definitions))


async def _established(connection: Connection, definition: Mapping[str, Any]) -> None:
    while True:
        status = (await connection.get(_path(definition))).get("status") or {}
        conditions = {c.get("type"): c for c in status.get("conditions") or ()}
        names = conditions.get("NamesAccepted", {})
        if names.get("status") == "False":
            raise FixError(f"CRD {definition['metadata']['name']}: {names.get('message')}")
        if conditions.get("Established", {}).get("status") == "True":
            return
        await asyncio.sleep(POLL_SECONDS)


def _read(paths: tuple[Path, ...]) -> list[dict[str, Any]]:
    """Return the CRDs in these files, without their other documents."""
    found = []
    for path in paths:
        try:
            documents = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=LOADER))
        except (OSError, yaml.YAMLError) as error:
            raise FixError(f"cannot read CRDs from {path}: {error}") from error
        found += [d for d in documents if isinstance(d, dict) and d.get("kind") == "CustomResourceDefinition"]
    return found


def _path(definition: Mapping[str, Any]) -> str:
    return f"{COLLECTION}/{definition['metadata']['name']}"
