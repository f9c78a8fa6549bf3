"""`config/crds` is what `admission/api/schemas` says. `MUSTER_REGENERATE=1 uv run pytest <this file>` rewrites it."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api.schemas import crds
from admission.api.schemas.fields import Schema
from admission.api.values import names

CRDS = Path(__file__).parents[2] / "config" / "crds"
DEFINITIONS = crds.all_definitions()
HEADER = """\
# Written from admission/api/schemas; change it there and run
#   MUSTER_REGENERATE=1 uv run pytest tests/architecture/test_crds.py
"""


class _Dumper(yaml.SafeDumper):
    """Writes repeated parts out: kubectl understands YAML's references, but people read past them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's signature
        return True


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_the_yaml_is_what_the_schemas_say(plural: str) -> None:
    path, wanted = CRDS / _file(plural), _rendered(DEFINITIONS[plural])
    if os.environ.get("MUSTER_REGENERATE") == "1":
        path.write_text(wanted)

    assert path.exists(), f"{path} is missing: run with MUSTER_REGENERATE=1"
    assert path.read_text() == wanted, f"{path} differs from its schema: run with MUSTER_REGENERATE=1"


def test_there_is_no_yaml_without_a_schema() -> None:
    assert {path.name for path in CRDS.iterdir()} == set(map(_file, DEFINITIONS))


def _file(plural: str) -> str:
    return f"{names.GROUP}_{plural}.yaml"


def _rendered(definition: Schema) -> str:
    text = yaml.dump(definition, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=118)
    return f"{HEADER}{text}"
