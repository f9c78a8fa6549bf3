"""Places for signed heads outside of the cluster: a file, or an HTTP endpoint. The real `ports.HeadSink`."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from admission.errors import FixError, RetryError
from admission.heads import signed_head
from admission.heads.signed_head import SignedHead

TIMEOUT = aiohttp.ClientTimeout(total=10.0)

MOST_IN_ERROR = 200
"""Characters of a foreign answer that are shown."""


class FileSink:
    """A file that heads are appended to, a line of JSON each; on a disk, say, that only ever takes more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: set[bytes] = set()

    async def publish(self, heads: Sequence[SignedHead]) -> None:
        """Append heads that this process has not appended, durably. Raises FixError if the file cannot be written."""
        new = [signed for signed in heads if signed.signature not in self._written]
        try:
            await asyncio.to_thread(self._append, b"".join(map(signed_head.to_line, new)))
        except OSError as error:
            raise FixError(f"heads.file: {self._path}: {error.strerror or error}") from error
        self._written = {signed.signature for signed in heads}

    def _append(self, lines: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


class HttpSink:
    """An endpoint that is sent one head at a time, by POST, as JSON; any answer of 2xx means that it has it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sent: set[bytes] = set()

    async def publish(self, heads: Sequence[SignedHead]) -> None:
        """Send heads that this process has not sent, in their order. Raises RetryError at the first that fails."""
        async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
            for signed in heads:
                if signed.signature not in self._sent:
                    await self._send(session, signed)
                    self._sent.add(signed.signature)
        self._sent = {signed.signature for signed in heads}

    async def _send(self, session: aiohttp.ClientSession, signed: SignedHead) -> None:
        try:
            headers = {"Content-Type": "application/json"}
            sending = session.post(self._url, data=signed_head.to_line(signed), headers=headers, allow_redirects=False)
            async with sending as answer:
                if not 200 <= answer.status < 300:
                    text = (await answer.content.read(MOST_IN_ERROR)).decode(errors="replace")
                    raise RetryError(f"heads.url: the endpoint answers {answer.status}: {text}")
        except (aiohttp.ClientError, TimeoutError) as error:
            # Not its text, which may name the URL with a password.
            raise RetryError(f"heads.url: the endpoint does not answer ({type(error).__name__})") from error
