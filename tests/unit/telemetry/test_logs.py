import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from admission.settings import Ledger, Settings, redaction
from admission.telemetry import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def stream() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(stream=stream)
    return stream


def logged(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    entry: dict[str, Any] = json.loads(line)
    return entry


def test_json_logs_have_an_object_per_line(stream: io.StringIO) -> None:
    structlog.get_logger("admission.x").info("gang admitted", gang="ml/train", pods=4)

    entry = logged(stream)
    assert (entry["event"], entry["level"], entry["logger"]) == ("gang admitted", "info", "admission.x")
    assert (entry["gang"], entry["pods"]) == ("ml/train", 4)
    assert entry["timestamp"].endswith("Z")


def test_people_get_readable_lines() -> None:
    stream = Terminal()
    logs.configure(stream=stream)

    structlog.get_logger("x").warning("a queue is full", queue="team-a")

    assert "a queue is full" in stream.getvalue()
    assert not stream.getvalue().lstrip().startswith("{")


def test_libraries_that_use_logging_come_out_alike(stream: io.StringIO) -> None:
    logging.getLogger("aiohttp").warning("slow %s", "client", extra={"peer": "10.0.0.1"})

    entry = logged(stream)
    assert (entry["event"], entry["level"], entry["peer"]) == ("slow client", "warning", "10.0.0.1")


def test_a_log_line_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    logs.configure(level="warning", stream=stream)

    structlog.get_logger("x").info("hidden")
    logging.getLogger("x").info("hidden")

    assert stream.getvalue() == ""


def test_a_traceback_is_a_single_field_of_a_json_log_line(stream: io.StringIO) -> None:
    try:
        raise ValueError("postgresql://muster:hunter2@db/muster does not answer")  # noqa: TRY301
    except ValueError as error:
        structlog.get_logger("x").error("failed", exc_info=error)

    entry = logged(stream)
    assert "ValueError" in entry["exception"]
    assert "hunter2" not in entry["exception"]


PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0hunter2.c2lnbmVkhunter2"

SECRETS: dict[str, dict[str, Any]] = {
    "a password by its name": {"password": "hunter2"},
    "a token by its name": {"bearer_token": "hunter2"},
    "a header": {"headers": {"Authorization": "Bearer hunter2"}},
    "a password in a URL": {"url": "postgresql://muster:hunter2@db/muster"},
    "a password in a list": {"urls": ["sqlite://", "redis://:hunter2@cache"]},
    "a secret of several parts": {"secret": {"a": "hunter2", "b": ["hunter2"]}},
    "a private key": {"pem": PEM.replace("MHcCAQEE", "hunter2")},
    "a private key that was cut": {"pem": "-----BEGIN PRIVATE KEY-----\nhunter2"},
    "a password with what ends others": {"url": "postgresql://muster:hun/te@r:2hunter2@db/muster"},
    "a password as a URL's parameter": {"url": "postgresql://db/muster?user=m&password=hunter2&sslmode=require"},
    "a key's password as a parameter": {"url": "postgresql://db/muster?sslpassword=hunter2"},
    "a password in a connection string": {"error": "cannot connect with host=db user=m password=hunter2"},
    "a token in a sentence": {"error": "the API server refused Bearer hunter2, which has expired"},
    "a header in a sentence": {"error": "sent {'Authorization': 'Basic hunter2'}"},
    "a bare token": {"seen": f"asked with {JWT}"},
    "a token that was cut": {"seen": JWT.rpartition(".")[0]},
    "an error": {"error": ValueError("postgresql://muster:hunter2@db/muster does not answer")},
    "settings": {"settings": Settings(ledger=Ledger(url="postgresql://muster:hunter2@db/muster"))},
}


@pytest.mark.parametrize("values", SECRETS.values(), ids=SECRETS)
def test_secrets_are_not_written(stream: io.StringIO, values: dict[str, Any]) -> None:
    structlog.get_logger("x").info("connecting", **values)

    assert "hunter2" not in stream.getvalue()
    assert redaction.MASK in stream.getvalue()


PLAIN: dict[str, dict[str, Any]] = {
    "a key of a queue": {"key": "ml/train"},
    "a number": {"tokens_left": 3},
    "a URL with a port": {"url": "https://host:8443/mutate"},
    "a user without a password": {"url": "postgresql://muster@db:5432/muster"},
    "an image by its digest": {"image": "registry.example.com:5000/muster@sha256:0f"},
    "who asked": {"user": "system:serviceaccount:muster-system:muster", "mail": "ada@example.org"},
    "a sentence about tokens": {"message": "401: the token has expired"},
}


@pytest.mark.parametrize("values", PLAIN.values(), ids=PLAIN)
def test_text_that_only_resembles_a_secret_stays_in_logs(stream: io.StringIO, values: dict[str, Any]) -> None:
    structlog.get_logger("x").info("renewed", **values)

    assert logged(stream).items() >= values.items()


def test_only_the_secret_part_is_masked(stream: io.StringIO) -> None:
    structlog.get_logger("x").info("lost", error="postgresql://muster:hunter2@db/muster?a=b: Bearer x.y, try again")

    assert logged(stream)["error"] == "postgresql://muster:***@db/muster?a=b: Bearer ***, try again"
