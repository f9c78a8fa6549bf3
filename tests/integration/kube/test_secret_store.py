"""The shared Secret: what is read and written, and that nobody overwrites what he has not read."""

import base64

import pytest

from admission.errors import ConflictError, FixError
from admission.kube.client.connection import Connection
from admission.kube.secret_store import SecretStore
from tests.integration.kube.fake_api import FakeApi

COLLECTION = "/api/v1/namespaces/muster-system/secrets"
PATH = f"{COLLECTION}/muster-webhook"


@pytest.fixture
def store(connection: Connection) -> SecretStore:
    return SecretStore(connection, namespace="muster-system", name="muster-webhook")


async def test_a_secret_is_read_as_written(api: FakeApi, store: SecretStore) -> None:
    assert await store.read() is None

    await store.write({"ca.crt": b"one"}, None)
    read = await store.read()
    assert read is not None
    await store.write({"ca.crt": b"two"}, read[1])

    again = await store.read()
    assert again is not None
    assert again[0] == {"ca.crt": b"two"}
    made = api.last("POST", COLLECTION).body
    assert (made["kind"], made["type"], made["metadata"]["name"]) == ("Secret", "Opaque", "muster-webhook")
    assert made["data"] == {"ca.crt": base64.b64encode(b"one").decode()}


async def test_of_two_concurrent_secret_writes_one_fails(api: FakeApi, store: SecretStore) -> None:
    await store.write({"ca.crt": b"one"}, None)
    with pytest.raises(ConflictError):
        await store.write({"ca.crt": b"another"}, None)
    read = await store.read()
    assert read is not None
    await store.write({"ca.crt": b"two"}, read[1])
    with pytest.raises(ConflictError):
        await store.write({"ca.crt": b"three"}, read[1])

    api.delete("/api/v1/secrets", "muster-system/muster-webhook")
    with pytest.raises(ConflictError, match="deleted meanwhile"):
        await store.write({"ca.crt": b"four"}, read[1])


async def test_data_that_is_not_base64_is_named(api: FakeApi, store: SecretStore) -> None:
    api.answer("GET", PATH, 200, {"metadata": {"resourceVersion": "1"}, "data": {"ca.crt": "%"}})

    with pytest.raises(FixError, match="Secret muster-system/muster-webhook: data is not base64"):
        await store.read()
