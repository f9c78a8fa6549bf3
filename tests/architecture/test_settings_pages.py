"""config/default.toml and docs/settings.md are what the schema of the settings says. `make settings` rewrites them."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from admission import resources
from admission.settings import Settings, docs, load
from admission.settings.schema import fields, sections

ROOT = Path(__file__).parents[2]
WRITTEN = {"config/default.toml": docs.default_toml, "docs/settings.md": docs.page}
SHIPPED = resources.config() / "default.toml"


@pytest.mark.parametrize("name", WRITTEN)
def test_the_written_settings_pages_equal_those_from_the_schema(name: str) -> None:
    path = ROOT / name
    if os.environ.get("MUSTER_REGENERATE") == "1":
        path.write_text(WRITTEN[name]())

    assert path.read_text() == WRITTEN[name](), "run `make settings`"


def test_the_shipped_file_holds_every_setting_with_its_default() -> None:
    given = set(leaves(tomllib.loads(SHIPPED.read_text())))

    assert load.read(SHIPPED).settings == Settings()
    assert given == {path for path, field in fields().items() if field.default is not None}


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_setting_and_every_section_says_what_it_means() -> None:
    assert [path for path, field in fields().items() if not field.meaning] == []
    assert [name for name, meaning in sections().items() if not meaning] == []


def test_no_two_settings_share_a_variable() -> None:
    variables = [field.variable for field in fields().values()]

    assert len(set(variables)) == len(variables)
