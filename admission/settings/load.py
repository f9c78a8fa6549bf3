"""Loading of settings from a TOML file, the environment and options, each of which overrides the one before.

One error names all problems, with the origin of each value. Unknown settings are refused, with the nearest known name.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from admission.errors import FixError
from admission.settings import Settings, problems
from admission.settings.redaction import format_value
from admission.settings.schema import PREFIX, Field, accepts_none, fields, is_list, replaced, sections


class Source(StrEnum):
    """A source of values, in ascending order of precedence."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a setting's value. where: `muster.toml:12`, `MUSTER_LEDGER_URL`, `--database`; empty by default."""

    source: Source
    where: str = ""

    def __str__(self) -> str:
        return self.where or str(self.source)


DEFAULT = Origin(source=Source.DEFAULT)


CONFIG = "MUSTER_CONFIG"
"""The environment variable that names the file."""

MANY_LINES = 400
"""In a longer file the lines of settings are not determined, since that takes time quadratic in the lines."""

_LINK = re.compile(r"(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
_LINKED = re.compile(r"(tcp|udp|sctp)://")
_NEAR = 0.6
_VERY_NEAR = 0.8


class Flag(NamedTuple):
    """An option of the command line: its name, the path of its setting, and its value."""

    option: str
    path: str
    value: Any


class Given(NamedTuple):
    """A given value of a setting. as_text: numbers and lists are text that is still to be parsed."""

    path: str
    value: Any
    origin: Origin
    as_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings, with the origins of those that are not defaults."""

    settings: Settings
    origins: Mapping[str, Origin]

    def origin(self, path: str) -> Origin:
        """Return the origin of the value at a path."""
        return self.origins.get(path, DEFAULT)


def read(
    file: Path | None = None, environment: Mapping[str, str] | None = None, flags: Iterable[Flag] = ()
) -> LoadedSettings:
    """Return the settings from file, environment and options. Raises FixError, which names all problems."""
    given = [*_from_file(file), *_from_environment(environment or {}), *_from_flags(flags)]
    messages: list[str] = []
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for entry in given:
        field = fields().get(entry.path)
        if field is None:
            messages.append(f"{entry.origin}: {_unknown(entry.path)}")
            continue
        try:
            values[entry.path] = _converted(field, entry)
            origins[entry.path] = entry.origin
        except ValueError:
            messages.append(f"{entry.origin}: {entry.path}: {format_value(field, entry.value)!r} is not {field.words}")
    settings = replaced(Settings(), values)
    messages += [_with_origin(problem, origins) for problem in problems(settings)]
    if messages:
        raise FixError(f"settings: {'; '.join(messages)}")
    return LoadedSettings(settings=settings, origins=origins)


def nearest(path: str) -> str | None:
    """Return the setting or section whose name is nearest to an unknown one; None if none is near."""
    name = path.rpartition(".")[2]

    def similarity(known: str) -> float:
        return max(_similarity(path, known), 0.9 * _similarity(name, known.rpartition(".")[2]))

    best = max((*fields(), *filter(None, sections())), key=similarity)
    return best if similarity(best) >= _NEAR else None


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _unknown(path: str) -> str:
    if path in sections():
        return f"{path}: is a section: write [{path}] and its settings below"
    suggestion = nearest(path)
    hint = f"; did you mean {suggestion}?" if suggestion else "; docs/settings.md lists all"
    return f"{path}: there is no such setting{hint}"


def _from_file(file: Path | None) -> Iterator[Given]:
    if file is None:
        return
    try:
        text = file.read_text()
        document = tomllib.loads(text)
    except OSError as error:
        raise FixError(f"settings {file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = "; settings are TOML, as docs/settings.md shows it" if file.suffix in (".yaml", ".yml") else ""
        raise FixError(f"settings {file}: is not TOML: {error}{hint}") from error
    lines = _lines(text)
    for path, value in _leaves(document, ""):
        line = f":{lines[path]}" if path in lines else ""
        yield Given(path, value, Origin(source=Source.FILE, where=f"{file}{line}"))


def _leaves(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and path in sections():
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _lines(text: str) -> Mapping[str, int]:
    """Return the line in which each setting of a TOML document begins.

    tomllib does not report lines, so ever longer prefixes of the document are parsed. A setting that appears with line
    N ends in line N; a prefix that cannot be parsed ends within a value, which began in the first such line.
    """
    lines = text.splitlines(keepends=True)
    found: dict[str, int] = {}
    start = 0
    for number, line in enumerate(lines[: MANY_LINES if len(lines) <= MANY_LINES else 0], 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        start = start or number
        try:
            document = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue
        for path, _ in _leaves(document, ""):
            found.setdefault(path, start)
        start = 0
    return found


def _from_environment(environment: Mapping[str, str]) -> Iterator[Given]:
    """Yield the values from variables, except empty ones and those that kubelet sets for Services."""
    paths = {field.variable: path for path, field in fields().items()}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or not text or name == CONFIG or _is_link(name, text):
            continue
        path = paths.get(name) or _probable_path(name)
        if path is not None:
            yield Given(path, text, Origin(source=Source.ENVIRONMENT, where=name), as_text=True)


def _is_link(name: str, text: str) -> bool:
    """Return whether a variable is one that kubelet sets for a Service of the pod's namespace, as muster-webhook."""
    found = _LINK.search(name)
    return found is not None and (found.group() != "_PORT" or _LINKED.match(text) is not None)


def _probable_path(name: str) -> str | None:
    """Return the unknown path to report for a variable without a setting; None if it is probably no setting."""
    rest = name.removeprefix(PREFIX).lower()
    for section in filter(None, sections()):
        if rest.startswith(f"{section}_"):
            return f"{section}.{rest.removeprefix(f'{section}_')}"
    near = any(_similarity(rest, path.replace(".", "_")) >= _VERY_NEAR for path in fields())
    return rest if near else None


def _from_flags(flags: Iterable[Flag]) -> Iterator[Given]:
    for flag in flags:
        yield Given(flag.path, flag.value, Origin(source=Source.FLAG, where=flag.option), as_text=True)


def _converted(field: Field, given: Given) -> Any:
    """Return the value of a setting. Raises ValueError for another type, or a value out of bounds."""
    value = given.value
    if given.as_text and isinstance(value, str):
        if is_list(field.kind):
            value = [part.strip() for part in value.split(",") if part.strip()]
        elif not value and accepts_none(field.kind):
            value = None
    elif isinstance(value, float) and value.is_integer():
        # Helm parses YAML's numbers as floats, so it may write integers with a decimal point.
        value = int(value)
    converted = msgspec.convert(value, field.kind, strict=not given.as_text)
    if isinstance(converted, float) and not math.isfinite(converted):
        raise ValueError(f"{converted} is no number to work with")
    return converted


def _with_origin(problem: str, origins: Mapping[str, Origin]) -> str:
    """Return a problem with the origin of its setting in front, unless that has its default."""
    origin = origins.get(problem.partition(":")[0])
    return f"{origin}: {problem}" if origin else problem
