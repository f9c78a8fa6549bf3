"""What is shown and published follows its source, and what fails is tried again."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from admission.errors import FixError, MusterError, RetryError
from admission.webhook.tls import certificate, rotation
from admission.webhook.tls.rotation import AuthorityFile, CertificateFiles

NOW = datetime(2026, 8, 1, tzinfo=UTC)
FIRST, SECOND = (certificate.self_made(["localhost"], now=NOW) for _ in range(2))


NOT_RENEWED = "the webhook's certificate is not renewed"


@dataclass
class Script:
    """A source that says one thing after the other, and nothing more at its end."""

    says: list[bytes | MusterError]
    every: float = 0.0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def current(self) -> bytes:
        if not self.says:
            self.done.set()
            await asyncio.Event().wait()
        said = self.says.pop(0)
        if isinstance(said, MusterError):
            raise said
        return said


async def test_rotation_uses_only_new_values_and_goes_on_after_failures() -> None:
    source = Script([b"1", b"1 2", FixError("the API server is away"), b"1 2", b"2"])
    used: list[bytes] = []

    async def use(value: bytes) -> None:
        used.append(value)

    with capture_logs() as logs:
        keeping = asyncio.create_task(rotation.keep(source, b"1", use=use, failure=NOT_RENEWED))
        await source.done.wait()
        keeping.cancel()

    assert used == [b"1 2", b"2"]
    assert [(entry["event"], entry["error"]) for entry in logs] == [(NOT_RENEWED, "the API server is away")]


async def test_a_rotated_value_that_could_not_be_used_is_used_at_the_next_check() -> None:
    source = Script([b"2", b"2"])
    tries: list[bytes] = []

    async def use(value: bytes) -> None:
        tries.append(value)
        if len(tries) == 1:
            raise FixError("not now")

    with capture_logs():
        keeping = asyncio.create_task(rotation.keep(source, b"1", use=use, failure=NOT_RENEWED))
        await source.done.wait()
        keeping.cancel()

    assert tries == [b"2", b"2"]


async def test_the_first_value_is_waited_for_and_what_is_wrong_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "WAIT_SECONDS", 0.0)

    with capture_logs() as logs:
        waited_for = Script([RetryError("not yet"), RetryError("not yet"), b"1"])
        assert await rotation.first(waited_for.current, "its paths") == b"1"
        with pytest.raises(FixError, match="no base64"):
            await rotation.first(Script([FixError("no base64"), b"1"]).current, "its paths")

    assert {(entry["event"], entry["error"]) for entry in logs} == {("the webhook waits for its paths", "not yet")}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "tls.crt").write_bytes(FIRST.certificate)
    (tmp_path / "tls.key").write_bytes(FIRST.key)
    (tmp_path / "ca.crt").write_bytes(FIRST.authority)
    return tmp_path


async def test_certificate_files_are_read_again_at_every_check(files: Path) -> None:
    source = CertificateFiles(files / "tls.crt", files / "tls.key", files / "ca.crt")
    assert await source.current() == FIRST
    assert await AuthorityFile(files / "ca.crt").current() == FIRST.authority

    (files / "tls.crt").write_bytes(SECOND.certificate)
    with pytest.raises(FixError, match="do not belong together"):
        await source.current()
    (files / "tls.key").write_bytes(SECOND.key)

    assert (await source.current()).key == SECOND.key


async def test_without_a_file_of_the_authority_none_is_known(files: Path) -> None:
    assert (await CertificateFiles(files / "tls.crt", files / "tls.key", None).current()).authority == b""


async def test_files_that_are_missing_or_no_certificate_are_named(files: Path) -> None:
    with pytest.raises(FixError, match=r"webhook\.key: .*nowhere cannot be read: No such file"):
        await CertificateFiles(files / "tls.crt", files / "nowhere", None).current()
    (files / "tls.crt").write_text("x")
    with pytest.raises(FixError, match="cannot be read"):
        await CertificateFiles(files / "tls.crt", files / "tls.key", None).current()


async def test_a_leaf_certificate_expires_with_its_authority() -> None:
    authority = certificate.authority(now=NOW, validity=timedelta(days=1))

    leaf = certificate.issue(authority, ["localhost"], now=NOW, validity=timedelta(days=9))

    assert leaf.expires == authority.expires == NOW + timedelta(days=1)
