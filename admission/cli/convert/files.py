"""The files that are converted: their objects, which are changed in place, and their texts afterwards."""

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from admission.api.kubernetes import meta
from admission.cli import manifest_reader
from admission.cli.convert import json_text, yaml_text
from admission.cli.convert.json_text import JsonText
from admission.cli.convert.yaml_text import Document, Text, TooManyValuesError
from admission.cli.manifest_reader import BadInputError, Source
from admission.conversion.equivalents import GROUP, VERSION, Object

LARGEST = 16 * 1024 * 1024
"""Characters of a file. A dump of a whole cluster may have more, but is not a manifest that somebody keeps."""

MOST_FILES = 10_000
MOST_LEVELS = 200
"""Of values in each other. An object of Kubernetes has some twenty."""


@dataclass(slots=True)
class Item:
    """An object of a file. label: what it was when it was read; path: of it in its document."""

    body: Object
    label: str
    path: str = ""
    document: Document | None = None
    siblings: list[Any] | None = None
    """The items of the list that it is in, if any."""

    def add(self, objects: Iterable[Object], text: "File") -> None:
        """Write objects behind this one."""
        for one in objects:
            if self.siblings is not None:
                self.siblings.append(one)
            elif self.document is not None:
                self.document.added.append(one)
            else:
                text.make_list(self.body, one)


@dataclass(slots=True)
class File:
    """A file that was read. items: its objects; what is none, such as the values of a chart, is left alone."""

    source: Source
    text: Text | JsonText
    items: list[Item] = field(default_factory=list)

    def make_list(self, first: Object, second: Object) -> None:
        """Write a list in the place of the only object of a JSON file."""
        text = self.text
        if isinstance(text, JsonText):
            known = text.value["items"] if text.value is not first else [first]
            text.value = {"apiVersion": "v1", "kind": "List", "items": [*known, second]}

    def place(self, item: Item, path: str) -> str:
        """Return `file:line` of a field of an object, as it was read."""
        node = item.document.node if item.document is not None else self._root()
        if node is None:
            return self.source.name
        return f"{self.source.name}:{manifest_reader.line_of(node, f'{item.path}.{path}'.strip('.'))}"

    def _root(self) -> yaml.Node | None:
        try:
            found: yaml.Node | None = yaml.compose(self.source.text, manifest_reader.Loader)
        except yaml.YAMLError:
            return None
        return found


def read(paths: Iterable[str]) -> list[File]:
    """Read files, folders and `-`. Raises BadInputError, with all that cannot be read."""
    found: list[File] = []
    problems: list[str] = []
    for source in manifest_reader.sources(paths):
        try:
            found.append(_file(source))
        except BadInputError as error:
            problems += error.problems
        if len(found) > MOST_FILES:
            raise BadInputError([f"more than {MOST_FILES} files: name the folders that have manifests"])
    if problems:
        raise BadInputError(problems)
    return found


def _file(source: Source) -> File:
    if len(source.text) > LARGEST:
        raise BadInputError([f"{source.name}: has more than {LARGEST // 1024 // 1024} MiB: split it"])
    if _is_deep(manifest_reader.documents(source)):
        raise BadInputError([f"{source.name}: is nested in more than {MOST_LEVELS} levels: no manifest is"])
    text = json_text.read(source.text)
    if text is not None:
        return File(source, text, [*_items(text.value, None)])
    try:
        found = yaml_text.read(source.text)
    except TooManyValuesError as error:
        raise BadInputError([f"{source.name}: its aliases stand for too many values"]) from error
    return File(source, found, [item for one in found.documents for item in _items(one.value, one)])


def _is_deep(value: Any) -> bool:
    """Whether a value is nested in more levels than are read. What stands for a part seen before is not followed."""
    level, seen = [value], set[int]()
    for _ in range(MOST_LEVELS):
        inner = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
        level = [part for part in inner if isinstance(part, dict | list) and id(part) not in seen]
        seen.update(map(id, level))
        if not level:
            return False
    return True


def _items(value: Any, document: Document | None) -> Iterator[Item]:
    """Yield the objects of a document: itself, or those in it if it is a list."""
    if not isinstance(value, MutableMapping) or not isinstance(value.get("kind"), str):
        return
    kind, items = value["kind"], value.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        if isinstance(value.get("apiVersion"), str):
            yield Item(value, _label(value), "", document)
        return
    group, _, version = str(value.get("apiVersion")).rpartition("/")
    is_old = group == GROUP and version != VERSION.rpartition("/")[2]
    for at, one in enumerate(items):
        if isinstance(one, MutableMapping):
            if is_old:
                one.setdefault("apiVersion", value["apiVersion"])
                one.setdefault("kind", kind.removesuffix("List"))
            yield Item(one, _label(one), f"items[{at}]", document, items)
    if is_old:
        value["apiVersion"], value["kind"] = "v1", "List"


def _label(obj: Object) -> str:
    return f"{obj.get('kind')} {meta.name_in(obj)}"
