"""Generation of config/default.toml and docs/settings.md from the schema (`make settings`)."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from admission.settings.schema import Field, fields, sections

WIDTH = 120

TOML_HEAD = """\
# Every setting of Muster with its default. Copy what you change into a file of your own, and name that in
# `muster serve --config FILE` or $MUSTER_CONFIG. Environment variables go before the file, options before both.
# Written from admission/settings by `make settings`.
"""

PAGE_HEAD = """\
# Settings

Every setting has a default. A TOML file goes before it, the environment before the file, and options of the command
line before all. The file is named by `--config FILE` or `MUSTER_CONFIG`;
[config/default.toml](../config/default.toml) is one with all defaults. What is not known is refused, with the nearest
name that is.

| from | as |
| --- | --- |
| file | `steps = 100000` below `[controller]` |
| environment | `MUSTER_CONTROLLER_STEPS=100000`; an empty variable says nothing |
| option | `--set controller.steps=100000`, or an option of its own, such as `--webhook-port` |

In variables and options, lists are separated by commas. `muster config show` tells each value, where it comes from, and
whether a running Muster takes up a new one. Passwords are masked there.

## Changing settings while Muster runs

`muster serve` reads its file again on SIGHUP, and within seconds when it has changed, as a mounted ConfigMap does.
Settings marked *live* hold from then on. Others need a restart: the log names those that wait for one, and the old
value goes on meanwhile. A file that cannot be used changes nothing, and the log says what is wrong with it. Environment
and options are those of the start.
"""


def default_toml() -> str:
    """Return config/default.toml."""
    parts = [TOML_HEAD]
    section = ""
    for field in fields().values():
        if field.section != section:
            section = field.section
            parts.append(f"{_comment(sections()[section])}[{section}]\n")
        parts.append(f"{_comment(field.meaning)}{_line(field)}\n")
    return "\n".join(parts)


def page() -> str:
    """Return docs/settings.md."""
    return "\n".join([PAGE_HEAD, *_tables()])


def _tables() -> Iterator[str]:
    for section, meaning in sections().items():
        heading = f"`{section}`" if section else "At the top"
        rows = [_row(field) for field in fields().values() if field.section == section]
        table = ["| setting | default | takes | meaning |", "| --- | --- | --- | --- |", *rows]
        yield "\n".join([f"## {heading}", "", meaning, "", *table, ""])


def _row(field: Field) -> str:
    default = "" if field.default is None else f"`{_toml(field.default)}`"
    live = " *Live.*" if field.live else ""
    cells = (f"`{field.path}`", default, field.words, f"{field.meaning}{live}")
    return f"| {' | '.join(cells)} |"


def _line(field: Field) -> str:
    name = field.path.rpartition(".")[2]
    return f"# {name} =" if field.default is None else f"{name} = {_toml(field.default)}"


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text.replace("`", ""), WIDTH - 2))


def _toml(value: Any) -> str:
    """Return a default as TOML, whose strings, numbers and lists are written as in JSON."""
    return json.dumps(value, ensure_ascii=False)
