"""A ConfigMap of Muster's own, with texts that anybody with the right to it may read: the real `ports.EntryStore`."""

from collections.abc import Mapping
from typing import Any

from admission.errors import FixError
from admission.kube.entry_store import EntryStore

MOST_BYTES = 1_000_000
"""The API server takes objects of about this size (etcd's limit is 1.5 MiB, a ConfigMap's data 1 MiB)."""


class ConfigMapStore(EntryStore):
    """The entries of one ConfigMap, of MOST_BYTES together at most."""

    kind = "ConfigMap"
    plural = "configmaps"

    def _decode(self, data: Mapping[str, Any]) -> dict[str, bytes]:
        return {str(key): str(text).encode() for key, text in data.items()}

    def _encode(self, entries: Mapping[str, bytes]) -> dict[str, str]:
        size = sum(map(len, entries.values()))
        if size > MOST_BYTES:
            raise FixError(f"{self._identity}: {size} bytes are more than {MOST_BYTES}")
        return {key: value.decode() for key, value in entries.items()}
