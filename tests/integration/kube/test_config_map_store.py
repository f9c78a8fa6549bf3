"""The ConfigMap with heads: what is read and written, and that nobody overwrites what he has not read."""

import pytest

from admission.errors import ConflictError, FixError
from admission.kube import config_map_store
from admission.kube.client.connection import Connection
from admission.kube.config_map_store import ConfigMapStore
from tests.integration.kube.fake_api import FakeApi

COLLECTION = "/api/v1/namespaces/muster-system/configmaps"


@pytest.fixture
def store(connection: Connection) -> ConfigMapStore:
    return ConfigMapStore(connection, namespace="muster-system", name="muster-heads")


async def test_a_config_map_is_read_as_written(api: FakeApi, store: ConfigMapStore) -> None:
    assert await store.read() is None

    await store.write({"heads.jsonl": b"one\n"}, None)
    read = await store.read()
    assert read is not None
    await store.write({"heads.jsonl": "zwei ä\n".encode()}, read[1])

    again = await store.read()
    assert again is not None
    assert again[0] == {"heads.jsonl": "zwei ä\n".encode()}
    made = api.last("POST", COLLECTION).body
    assert (made["kind"], made["metadata"]["name"], made["data"]) == (
        "ConfigMap",
        "muster-heads",
        {"heads.jsonl": "one\n"},
    )


async def test_of_two_concurrent_config_map_writes_one_fails(api: FakeApi, store: ConfigMapStore) -> None:
    await store.write({"a": b"one"}, None)
    with pytest.raises(ConflictError):
        await store.write({"a": b"another"}, None)
    read = await store.read()
    assert read is not None
    await store.write({"a": b"two"}, read[1])
    with pytest.raises(ConflictError):
        await store.write({"a": b"three"}, read[1])

    api.delete("/api/v1/configmaps", "muster-system/muster-heads")
    with pytest.raises(ConflictError, match="deleted meanwhile"):
        await store.write({"a": b"four"}, read[1])


async def test_what_is_too_large_for_a_config_map_is_not_sent(
    store: ConfigMapStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_map_store, "MOST_BYTES", 3)

    with pytest.raises(FixError, match="4 bytes are more than 3"):
        await store.write({"a": b"four"}, None)
