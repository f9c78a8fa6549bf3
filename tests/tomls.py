"""Settings written as the TOML file that Muster reads."""

import json
from collections.abc import Mapping
from typing import Any


def dumped(values: Mapping[str, Any], *, below: str = "") -> str:
    """Return settings as TOML; what is None is left out, since it is the default. below: a section and a dot."""
    given = {name: value for name, value in values.items() if value is not None}
    top = [_line(name, value) for name, value in given.items() if not isinstance(value, Mapping)]
    tables = [
        f"\n[{below}{name}]\n{dumped(value, below=f'{below}{name}.')}"
        for name, value in given.items()
        if isinstance(value, Mapping)
    ]
    return "".join([*top, *tables])


def _line(name: str, value: Any) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
