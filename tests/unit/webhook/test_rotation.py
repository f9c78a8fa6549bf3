"""What is shown and published follows its source, and what fails is tried again."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from admission.errors import FixError
from admission.webhook.tls import certificate, rotation
from admission.webhook.tls.certificate import Certificate
from admission.webhook.tls.rotation import Files, ServingCertificate

NOW = datetime(2026, 8, 1, tzinfo=UTC)
FIRST, SECOND = (certificate.self_made(["localhost"], now=NOW) for _ in range(2))


@dataclass
class Script:
    """A source that says one thing after the other, and nothing more at its end."""

    says: list[ServingCertificate | FixError]
    every: float = 0.0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def current(self) -> ServingCertificate:
        if not self.says:
            self.done.set()
            await asyncio.Event().wait()
        said = self.says.pop(0)
        if isinstance(said, FixError):
            raise said
        return said


async def test_only_what_is_new_is_shown_and_published_and_failures_are_outlived() -> None:
    first = ServingCertificate(certificate=FIRST, bundle=b"1")
    both = ServingCertificate(certificate=FIRST, bundle=b"1 2")
    second = ServingCertificate(certificate=SECOND, bundle=b"1 2")
    source = Script([first, both, FixError("the API server is away"), second, second])
    happened: list[object] = []

    async def show(certificate: Certificate) -> None:
        happened.append(certificate)

    with capture_logs() as logs:
        keeping = asyncio.create_task(rotation.keep(source, first, serve=show, publish=happened.append))
        await source.done.wait()
        keeping.cancel()

    assert happened == [b"1 2", SECOND]
    assert [entry["error"] for entry in logs if "error" in entry] == ["the API server is away"]


async def test_a_certificate_that_could_not_be_served_is_served_at_the_next_check() -> None:
    first, second = (ServingCertificate(certificate=one, bundle=None) for one in (FIRST, SECOND))
    source = Script([second, second])
    tries: list[Certificate] = []

    async def show(certificate: Certificate) -> None:
        tries.append(certificate)
        if len(tries) == 1:
            raise FixError("not now")

    with capture_logs():
        keeping = asyncio.create_task(rotation.keep(source, first, serve=show, publish=lambda _: None))
        await source.done.wait()
        keeping.cancel()

    assert tries == [SECOND, SECOND]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "tls.crt").write_bytes(FIRST.certificate)
    (tmp_path / "tls.key").write_bytes(FIRST.key)
    (tmp_path / "ca.crt").write_bytes(FIRST.authority)
    return tmp_path


async def test_certificate_files_are_read_again_at_every_check(files: Path) -> None:
    source = Files(files / "tls.crt", files / "tls.key", files / "ca.crt")
    assert await source.current() == ServingCertificate(certificate=FIRST, bundle=FIRST.authority)

    (files / "tls.crt").write_bytes(SECOND.certificate)
    with pytest.raises(FixError, match="do not belong together"):
        await source.current()
    (files / "tls.key").write_bytes(SECOND.key)

    assert (await source.current()).certificate.key == SECOND.key


async def test_without_a_file_of_the_authority_nothing_is_published(files: Path) -> None:
    assert (await Files(files / "tls.crt", files / "tls.key", None).current()).bundle is None


async def test_files_that_are_missing_or_no_certificate_are_named(files: Path) -> None:
    with pytest.raises(FixError, match=r"webhook\.key: .*nowhere cannot be read: No such file"):
        await Files(files / "tls.crt", files / "nowhere", None).current()
    (files / "tls.crt").write_text("x")
    with pytest.raises(FixError, match="cannot be read"):
        await Files(files / "tls.crt", files / "tls.key", None).current()


async def test_a_leaf_certificate_expires_with_its_authority() -> None:
    authority = certificate.authority(now=NOW, validity=timedelta(days=1))

    leaf = certificate.issue(authority, ["localhost"], now=NOW, validity=timedelta(days=9))

    assert leaf.expires == authority.expires == NOW + timedelta(days=1)
