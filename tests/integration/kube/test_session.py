"""The end of a session, over TLS and beside a server that does not say good-bye."""

import asyncio
import contextlib
import gc
import socket
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from admission.kube.client.connection import Connection
from admission.kube.client.credentials import ClusterSelection
from admission.webhook.tls import certificate

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that begins its answers, and from then on neither reads nor writes."""
    context = certificate.server_context()
    certificate.load(context, certificate.self_made(["127.0.0.1"], now=datetime.now(UTC)))
    ended = threading.Event()

    def serve(listening: socket.socket) -> None:
        with contextlib.ExitStack() as held:
            while True:
                try:
                    connection = held.enter_context(listening.accept()[0])
                except OSError:
                    break
                speaking = held.enter_context(context.wrap_socket(connection, server_side=True))
                speaking.recv(65536)
                speaking.sendall(HEAD)
            ended.wait()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    ended.set()
    thread.join()


@pytest.fixture
def unverified(kubeconfig: Callable[[str], Path], silent: str) -> Path:
    path = kubeconfig(silent)
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path.write_text(yaml.safe_dump(content))
    return path


async def begun(lines: AsyncGenerator[bytes]) -> None:
    async with aclosing(lines):
        async for _ in lines:
            return


async def give_up_after_the_head(path: Path) -> None:
    async with Connection(ClusterSelection(kubeconfig=path)) as connection:
        await begun(connection.lines("/api/v1/pods", {"watch": True}, quiet=60, total=60))


async def cancel_while_waiting_for_more(path: Path) -> None:
    async with Connection(ClusterSelection(kubeconfig=path)) as connection:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await connection.get("/api/v1/pods")


@pytest.mark.parametrize("run", [give_up_after_the_head, cancel_while_waiting_for_more])
def test_no_connection_outlives_the_loop(unverified: Path, run: Callable[[Path], object]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(run(unverified))  # type: ignore[arg-type]
        gc.collect()

    assert [str(one.message) for one in caught if "unclosed" in str(one.message)] == []
