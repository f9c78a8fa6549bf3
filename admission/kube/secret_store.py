"""A Secret of Muster's own: the webhook's authorities, or the keys that sign heads of the ledger."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, ClassVar

from admission.errors import FixError
from admission.kube.entry_store import EntryStore


class SecretStore(EntryStore):
    """The entries of one Secret: the real `webhook.tls.rotation.SecretStore`."""

    kind = "Secret"
    plural = "secrets"
    fields: ClassVar[Mapping[str, str]] = {"type": "Opaque"}

    def _decode(self, data: Mapping[str, Any]) -> dict[str, bytes]:
        try:
            return {key: base64.b64decode(text, validate=True) for key, text in data.items()}
        except binascii.Error as error:
            raise FixError(f"{self._identity}: data is not base64: {error}") from error

    def _encode(self, entries: Mapping[str, bytes]) -> dict[str, str]:
        return {key: base64.b64encode(value).decode() for key, value in entries.items()}
