"""Reader of manifests: files, folders or standard input become objects, each with its place in the input.

For the commands that work offline. YAML is read as Kubernetes reads it: times stay text, and a duplicate key is an
error. Lines are looked up only for a problem: the text is parsed again, and the field's path is followed.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from admission.api.kubernetes import meta
from admission.api.values.decoding import Json
from admission.errors import FixError, Problem

STANDARD_INPUT = "-"
SUFFIXES = frozenset({".yaml", ".yml", ".json"})

MOST_SHOWN = 20
"""The most problems of a file of rows that are reported one by one."""

_TEXT = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})
"""What YAML 1.1 has beside text and Kubernetes reads as text: times and `=`."""
_INTEGER, _NUMBER = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_IN_KUBERNETES: Mapping[str, re.Pattern[str]] = {
    _INTEGER: re.compile(r"[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z"),
    _NUMBER: re.compile(
        r"([-+]?(\.[0-9]+|[0-9][0-9_]*\.[0-9_]*)([eE][-+]?[0-9]{1,2})?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]{1,2}"
        r"|[-+]?0[0-9]*[89][0-9]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z"
    ),
}
"""Numbers as go.yaml.in/yaml/v2 reads them: `12:30` and `8e1234` are text, `1e3` and `08` are numbers."""
_Base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BadInputError(FixError):
    """Unusable manifests; one line for each problem, with file, line and field."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def refuse_lines(name: str, found: Sequence[tuple[int, Problem]]) -> None:
    """Raise BadInputError with the problems of a file by their lines, if there are any."""
    in_order = sorted(found, key=lambda one: one[0])
    lines = [f"{name}:{line}: {problem}" for line, problem in in_order[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        lines.append(f"{name}: and {len(found) - MOST_SHOWN} more")
    if lines:
        raise BadInputError(lines)


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read; `name` is its name in messages."""

    name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object and its place: the source, the document in it, and the item if the document is a list."""

    body: Json
    source: Source
    document: int = 0
    item: int | None = None

    @property
    def label(self) -> str:
        """Return `Kind namespace/name` for messages."""
        return f"{self.body.get('kind')} {self.name}"

    @property
    def name(self) -> str:
        """Return `namespace/name`, as far as the object has them."""
        return meta.name_in(self.body)

    def place(self, path: str = "") -> str:
        """Return `file:line` of a field, or of the closest existing object around it."""
        inside = path if self.item is None else f"items[{self.item}].{path}".rstrip(".")
        node = next((node for at, node in enumerate(_nodes(self.source.text)) if at == self.document), None)
        if node is None:
            return self.source.name
        return f"{self.source.name}:{line_of(node, inside)}"

    def problem(self, problem: Problem) -> str:
        """Return one problem of the object as a line for people."""
        return f"{self.place(problem.field)}: {self.label}: {problem}"


def read(paths: Iterable[str]) -> list[Manifest]:
    """Return the objects of files, folders (with all below them) and `-`, in order. Raises BadInputError."""
    found: list[Manifest] = []
    problems: list[str] = []
    for source in sources(paths):
        try:
            found += _manifests(source)
        except BadInputError as error:
            problems += error.problems
    problems += [manifest.problem(problem) for manifest in found for problem in _problems(manifest.body)]
    if problems:
        raise BadInputError(problems)
    return found


def _problems(body: Json) -> Iterator[Problem]:
    """Yield the missing fields that an object of any kind needs."""
    for name in ("apiVersion", "kind"):
        value = body.get(name)
        if value is None or value == "":
            yield Problem(name, "is required")
        elif not isinstance(value, str):
            yield Problem(name, f"is {value!r}, a string is expected")


def sources(paths: Iterable[str]) -> Iterator[Source]:
    for path in paths:
        if path == STANDARD_INPUT:
            yield Source("(standard input)", _decoded("(standard input)", sys.stdin.buffer.read()))
        else:
            yield from (_file(file) for file in _files(Path(path)))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    candidates = (file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    files = sorted(file for file in candidates if not _is_hidden(file.relative_to(path)))
    if not files:
        raise BadInputError([f"{path}: no file in this folder ends in .yaml, .yml or .json"])
    return files


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _file(path: Path) -> Source:
    try:
        return Source(str(path), _decoded(str(path), path.read_bytes()))
    except OSError as error:
        raise BadInputError([f"{path}: {error.strerror or error}"]) from error


def _decoded(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError([f"{name}:{line}: is not UTF-8 text"]) from error


def _manifests(source: Source) -> list[Manifest]:
    found: list[Manifest] = []
    problems: list[str] = []
    for number, document in enumerate(documents(source)):
        if document is None:
            continue
        for item, body in _items(document):
            manifest = Manifest(body, source, number, item)
            if isinstance(body, Mapping):
                found.append(manifest)
            else:
                problems.append(f"{manifest.place()}: is no Kubernetes object: a mapping with apiVersion and kind")
    if problems:
        raise BadInputError(problems)
    return found


def _items(document: Any) -> list[tuple[int | None, Any]]:
    """Return the items of a list: `kind: List`, or a typed one such as PodList, whose items may omit their kind."""
    if not isinstance(document, Mapping):
        return [(None, document)]
    kind, items = document.get("kind"), document.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
        return [(None, document)]
    implied = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    return [(at, {**implied, **item} if isinstance(item, Mapping) else item) for at, item in enumerate(items)]


def documents(source: Source) -> list[Any]:
    if source.text.lstrip()[:1] == "{":
        # A dump in JSON is large, and the JSON parser is fast; a text that it rejects may still be YAML in braces.
        try:
            return [json.loads(source.text)]
        except (ValueError, RecursionError):
            pass
    try:
        loader = Loader(source.text)
        try:
            documents = []
            while loader.check_data():
                documents.append(loader.get_data())
            return documents
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{source.name}:{mark.line + 1}" if mark else source.name
        raise BadInputError([f"{place}: is not YAML: {error.problem or error.context}"]) from error
    except (yaml.YAMLError, ValueError, AttributeError, KeyError, TypeError) as error:
        # PyYAML raises the last four if a value does not match its tag, such as `!!timestamp x`.
        raise BadInputError([f"{source.name}: is not YAML: {type(error).__name__}: {error}"]) from error
    except RecursionError as error:
        raise BadInputError([f"{source.name}: is nested too deeply"]) from error


class Loader(_Base):  # type: ignore[misc,valid-type]
    """YAML as Kubernetes reads it."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class has it
        first: [(tag, _IN_KUBERNETES.get(tag, pattern)) for tag, pattern in resolvers if tag not in _TEXT]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} stands twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _nodes(text: str) -> Iterator[yaml.Node]:
    """Yield the documents as nodes, which have lines; stops early if the text is only JSON, not YAML."""
    loader = Loader(text)
    try:
        while loader.check_node():
            yield loader.get_node()
    except yaml.YAMLError:
        return
    finally:
        loader.dispose()


def line_of(node: yaml.Node, path: str) -> int:
    """Return the line of a field of a document, or of the closest existing object around it; they count from 1."""
    line: int = _walk(node, path).start_mark.line
    return line + 1


def _walk(node: yaml.Node, path: str) -> yaml.Node:
    """Follow a path such as `spec.quotas[0].nominal` as far as it exists; keys may contain dots."""
    path = path.removeprefix(".")
    if not path:
        return node
    if isinstance(node, yaml.SequenceNode):
        number, _, rest_of_path = path.removeprefix("[").partition("]")
        at = int(number) if number.isdigit() else len(node.value)
        return _walk(node.value[at], rest_of_path) if at < len(node.value) else node
    if isinstance(node, yaml.MappingNode):
        steps = [
            (key, value, remaining)
            for key, value in node.value
            if (remaining := _rest_after(path, key.value)) is not None
        ]
        if steps:
            key, value, rest = max(steps, key=lambda step: len(step[0].value))
            # For the last step, return the key's node: the value may begin on a later line.
            return _walk(value, rest) if rest else key
    return node


def _rest_after(path: str, key: Any) -> str | None:
    """Return the rest of a path after a key, or None if the path does not begin with it."""
    if not isinstance(key, str):
        return None
    starts = (start for start in (f"[{key}]", key) if path.startswith(start))
    rests = (path.removeprefix(start) for start in starts)
    return next((rest for rest in rests if not rest or rest[0] in ".["), None)
