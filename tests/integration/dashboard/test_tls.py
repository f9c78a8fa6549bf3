"""The certificate that browsers are shown, as its files change."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from admission.dashboard.tls import Files, ServedCertificate
from admission.errors import FixError
from admission.webhook.tls.certificate import Certificate, self_made
from tests.integration.serving import eventually

OFTEN = 0.01


def a_leaf() -> Certificate:
    return self_made(["localhost"], now=datetime.now(UTC), validity=timedelta(days=1))


def written(folder: Path, leaf: Certificate) -> Files:
    files = Files(certificate=folder / "tls.crt", key=folder / "tls.key", authority=folder / "ca.crt")
    for path, pem in zip((files.certificate, files.key), (leaf.certificate, leaf.key), strict=True):
        path.write_bytes(pem)
    (folder / "ca.crt").write_bytes(leaf.authority)
    return files


@asynccontextmanager
async def a_server(files: Files) -> AsyncIterator[int]:
    """Serve TLS with what the files hold, and yield the port."""
    shows = await asyncio.to_thread(ServedCertificate, files)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=shows.context)
    async with server, asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(shows.keep(every=OFTEN), name="keep")
        yield server.sockets[0].getsockname()[1]
        keeping.cancel()


async def shown(port: int) -> int:
    """Return the serial number of the certificate that a new connection is shown."""
    pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def serial(leaf: Certificate) -> int:
    return x509.load_pem_x509_certificate(leaf.certificate).serial_number


async def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    first, second = a_leaf(), a_leaf()
    async with a_server(written(tmp_path, first)) as port:
        assert await shown(port) == serial(first)

        await asyncio.to_thread(written, tmp_path, second)

        async def shows_the_second() -> bool:
            return await shown(port) == serial(second)

        await eventually(shows_the_second, what="the second is shown")


async def test_a_key_that_is_not_the_certificates_changes_nothing(tmp_path: Path) -> None:
    first, second = a_leaf(), a_leaf()
    files = await asyncio.to_thread(written, tmp_path, first)
    with capture_logs() as logged:
        async with a_server(files) as port:
            await asyncio.to_thread(files.key.write_bytes, second.key)

            async def is_told() -> bool:
                return any(one["event"] == "the dashboard's certificate is not renewed" for one in logged)

            await eventually(is_told, what="it says so")

            assert await shown(port) == serial(first)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    files = written(tmp_path, a_leaf())
    files.key.unlink()

    with pytest.raises(FixError, match=rf"settings: dashboard: {files.certificate}, {files.key}"):
        ServedCertificate(files)
