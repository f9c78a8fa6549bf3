"""Settings out of a TOML file, the environment and options, each over the one before, and all over the defaults.

Whatever is wrong is named at once, with the place it stands at. What is not known is refused, with the nearest that is.
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
from admission.settings.redaction import shown
from admission.settings.schema import PREFIX, Field, fields, is_list, replaced, sections, takes_nothing


class Source(StrEnum):
    """What gives values, in order: each one goes before those above it."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value stands. where: `muster.toml:12`, `MUSTER_LEDGER_URL`, `--database`; empty for a default."""

    source: Source
    where: str = ""

    def __str__(self) -> str:
        return self.where or str(self.source)


DEFAULT = Origin(source=Source.DEFAULT)


CONFIG = "MUSTER_CONFIG"
"""The environment variable that names the file."""

MANY_LINES = 400
"""Of a longer file it is not told in which line a setting stands: that takes time with the square of them."""

_LINK = re.compile(r"(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
_LINKED = re.compile(r"(tcp|udp|sctp)://")
_NEAR = 0.6
_VERY_NEAR = 0.8


class Flag(NamedTuple):
    """An option of the command line: as it is typed, the setting that it is for, and what it says."""

    option: str
    path: str
    value: Any


class Given(NamedTuple):
    """What somebody wrote for a setting. as_text: numbers and lists are still to be read from it."""

    path: str
    value: Any
    origin: Origin
    as_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Settings, and where each that is not a default comes from."""

    settings: Settings
    origins: Mapping[str, Origin]

    def origin(self, path: str) -> Origin:
        """Where the value at a path comes from."""
        return self.origins.get(path, DEFAULT)


def read(file: Path | None = None, environment: Mapping[str, str] | None = None, flags: Iterable[Flag] = ()) -> Chosen:
    """Put together what file, environment and options say. Raises FixError that names everything that is wrong."""
    given = [*_from_file(file), *_from_environment(environment or {}), *_from_flags(flags)]
    wrong: list[str] = []
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for one in given:
        field = fields().get(one.path)
        if field is None:
            wrong.append(f"{one.origin}: {_unknown(one.path)}")
            continue
        try:
            values[one.path] = _converted(field, one)
            origins[one.path] = one.origin
        except ValueError:
            wrong.append(f"{one.origin}: {one.path}: {shown(field, one.value)!r} is not {field.words}")
    settings = replaced(Settings(), values)
    wrong += [_placed(problem, origins) for problem in problems(settings)]
    if wrong:
        raise FixError(f"settings: {'; '.join(wrong)}")
    return Chosen(settings=settings, origins=origins)


def nearest(path: str) -> str | None:
    """Return the setting or section whose name is nearest to one that there is not; None where none is near."""
    name = path.rpartition(".")[2]

    def nearness(known: str) -> float:
        return max(_ratio(path, known), 0.9 * _ratio(name, known.rpartition(".")[2]))

    best = max((*fields(), *filter(None, sections())), key=nearness)
    return best if nearness(best) >= _NEAR else None


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _unknown(path: str) -> str:
    if path in sections():
        return f"{path}: is a section: write [{path}] and its settings below"
    meant = nearest(path)
    hint = f"; did you mean {meant}?" if meant else "; docs/settings.md lists all"
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
    """Return in which line each setting of a TOML document begins.

    tomllib does not tell. What is read of the first N lines, and not of fewer, stands there; lines after which it
    cannot be read are in the middle of a value.
    """
    lines = text.splitlines(keepends=True)
    found: dict[str, int] = {}
    begun = 0
    for number, line in enumerate(lines[: MANY_LINES if len(lines) <= MANY_LINES else 0], 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begun = begun or number
        try:
            document = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue
        for path, _ in _leaves(document, ""):
            found.setdefault(path, begun)
        begun = 0
    return found


def _from_environment(environment: Mapping[str, str]) -> Iterator[Given]:
    """Yield what variables say. An empty one says nothing; those that kubelet sets for Services are no settings."""
    paths = {field.variable: path for path, field in fields().items()}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or not text or name == CONFIG or _is_link(name, text):
            continue
        path = paths.get(name) or _meant(name)
        if path is not None:
            yield Given(path, text, Origin(source=Source.ENVIRONMENT, where=name), as_text=True)


def _is_link(name: str, text: str) -> bool:
    """Whether kubelet sets a variable for a Service of the pod's namespace, such as muster-webhook."""
    found = _LINK.search(name)
    return found is not None and (found.group() != "_PORT" or _LINKED.match(text) is not None)


def _meant(name: str) -> str | None:
    """Return the path that a variable without a setting is refused as; None for one that means something else."""
    rest = name.removeprefix(PREFIX).lower()
    for section in filter(None, sections()):
        if rest.startswith(f"{section}_"):
            return f"{section}.{rest.removeprefix(f'{section}_')}"
    near = any(_ratio(rest, path.replace(".", "_")) >= _VERY_NEAR for path in fields())
    return rest if near else None


def _from_flags(flags: Iterable[Flag]) -> Iterator[Given]:
    for flag in flags:
        yield Given(flag.path, flag.value, Origin(source=Source.FLAG, where=flag.option), as_text=True)


def _converted(field: Field, given: Given) -> Any:
    """Return the value of a setting. Raises ValueError when it is of another type, or beyond a bound."""
    value = given.value
    if given.as_text and isinstance(value, str):
        if is_list(field.kind):
            value = [part.strip() for part in value.split(",") if part.strip()]
        elif not value and takes_nothing(field.kind):
            value = None
    elif isinstance(value, float) and value.is_integer():
        # Helm writes whole numbers with a point: YAML's numbers are floats to it.
        value = int(value)
    found = msgspec.convert(value, field.kind, strict=not given.as_text)
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(f"{found} is no number to work with")
    return found


def _placed(problem: str, origins: Mapping[str, Origin]) -> str:
    """Say where the setting of a flaw stands, if it is not a default."""
    origin = origins.get(problem.partition(":")[0])
    return f"{origin}: {problem}" if origin else problem
