"""The dashboard's certificate: files that another program renews, read again when they change."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

import structlog

from admission.errors import FixError

log = structlog.get_logger(__name__)

SECONDS = 10.0
"""The time between two reads of the files. Kubernetes updates those of a mounted Secret within about a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The PEM files. authority: of visitors' client certificates, if any."""

    certificate: Path
    key: Path
    authority: Path | None = None

    def __str__(self) -> str:
        return ", ".join(map(str, filter(None, (self.certificate, self.key, self.authority))))

    def read(self) -> tuple[bytes, ...]:
        """Return their contents. Raises OSError."""
        return tuple(path.read_bytes() for path in (self.certificate, self.key, self.authority) if path is not None)


class ServedCertificate:
    """The server's certificate: `context`, for TLS 1.2 or newer, in which `keep` renews it.

    Raises FixError if the files cannot be used.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        # They are read before they are loaded: files replaced in between are then loaded once more, and not missed.
        self._loaded = _contents(files)
        self.context = _context(files)

    async def keep(self, *, every: float = SECONDS) -> None:
        """Load changed files for new connections, until cancelled.

        An authority that was removed from its file is trusted until the process ends: a context cannot remove one.
        """
        while True:
            await asyncio.sleep(every)
            contents = await asyncio.to_thread(_contents, self._files)
            if contents == self._loaded:
                continue
            try:
                await asyncio.to_thread(self._renew)
            except FixError as error:
                log.warning("the dashboard's certificate is not renewed", error=str(error))
            else:
                log.info("the dashboard shows a new certificate")
                self._loaded = contents

    def _renew(self) -> None:
        # A context that fails to load a mismatched key loses its certificate, so the files are tried in another context
        # first.
        _context(self._files)
        self.context.load_cert_chain(self._files.certificate, self._files.key)
        if self._files.authority is not None:
            self.context.load_verify_locations(self._files.authority)


def _context(files: Files) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.authority is not None:
            context.load_verify_locations(files.authority)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise FixError(f"settings: dashboard: {files} cannot be used: {error}") from error
    return context


def _contents(files: Files) -> tuple[bytes, ...]:
    """Return the files' contents; () while one cannot be read."""
    try:
        return files.read()
    except OSError:
        return ()
