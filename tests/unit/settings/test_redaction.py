"""Nobody is shown a password that stands in a setting."""

import pytest

from admission.settings.redaction import format_value
from admission.settings.schema import fields

URLS = {
    "before the host": ("postgresql://muster:hush@db/muster", "postgresql://muster:***@db/muster"),
    "with what ends others": ("postgresql://muster:h@u:s/h@db/muster", "postgresql://muster:***@db/muster"),
    "as a parameter": ("postgresql://db/muster?user=m&password=hush&sslmode=require",
                       "postgresql://db/muster?user=m&password=***&sslmode=require"),
    "none": ("postgresql://muster@db/muster?sslmode=require", "postgresql://muster@db/muster?sslmode=require"),
    "a file's": ("sqlite:////var/lib/muster/a:b@c.db", "sqlite:////var/lib/muster/a:b@c.db"),
}  # fmt: skip


@pytest.mark.parametrize(("url", "seen"), URLS.values(), ids=URLS)
def test_a_password_in_a_url_is_masked(url: str, seen: str) -> None:
    assert format_value(fields()["ledger.url"], url) == seen


def test_settings_without_secrets_are_shown_unmasked() -> None:
    assert format_value(fields()["webhook.url"], "https://a:b@c") == "https://a:b@c"
