"""The layout keeps what docs/architecture.md says: packages with one job and a face, and names of the field."""

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for path in (ROOT / "admission").rglob("*.py") if "_shipped" not in path.parts)
PACKAGES = sorted({path.parent for path in SOURCES})
PAGES = [ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"]

MOST_MODULES = 13
"""Modules of one package, besides its `__init__`."""

LARGER = {
    "admission/cel/library": "one module for each of cel-go's and Kubernetes' libraries",
}

NOUNS = {
    "scheduling",
    "accounting",
    "metering",
    "packing",
    "tracing",
    "string",
    "sorting",
    "formatting",
    "decoding",
    "encoding",
    "borrowing",
    "fencing",
    "running",
    "pending",
    "binding",
    "opening",
    "listing",
    "waiting",
    "provisioning",
}
"""Words in -ing that are nouns of their field."""


PRIVATE_WORDS = set(
    re.findall(
        r"\w+",
        """
        alike alikes allotment allotting anew appraisal appraising aside asking assuming awaited away board boards
        breaching card carrying census chooser claiming crew deck desk displaced doors doubt doubting emptied entering
        entitlements entrance expecting families flaw flaws foretelling gathering giving guarding heeding hired hopeless
        hopes hosting imagined judging keeping kinship lack landing lending lineage lineages lingering lining looked
        looking looks making meeting mend mended namesake namesakes objected ousting outbox outlook pasts pauses paying
        placer promise promised purse quirks reaching realm recall recalled recalling reclaiming regained rehearsal
        rehearse rehearsing remembering reserving resting retelling rooms sacrifice scene scenes shelf shelving sight
        sights spot standing stay stepping stir stock strays succeeding sweep taking tell tenancy tenants tenure
        thinning told town trait traps understudy untold upkeep vaults vetting visit waking wanting ward world worlds
        """,
    )
)
"""What the code called things before its names were the field's."""

PRIVATE_IN_PROSE = set(
    re.findall(
        r"\w+",
        """
        alikes allotment allotting anew appraisal appraising census deck foretelling kinship lineage lineages namesake
        namesakes ousting outbox outlook purse realm recalled rehearsal rehearse rehearsing retelling scenes shelf
        shelving strays tenancy tenure thinning told trait understudy untold vetting worlds
        """,
    )
)
"""Those of these words that plain English about the field does not need, either."""

SHOWN_TO_USERS = {ROOT / "admission" / "cli", ROOT / "admission" / "settings"}
"""Where docstrings are the help of commands and the reference of settings."""

TERMS_OF_THE_FIELD = {"lending", "Lending", "lending_limit", "promised", "LONGEST_LOOKED_UP"}
"""Names with such a word that Kueue, or a spec or status of Muster, has; and what is looked up.

`seat` is kept too: the ledger's entries and its migrations name their columns `seats`, which are there to be read for
ever. `memory` stands for no cache any more, but cannot be guarded: devices and pods have memory.
"""

WORD = re.compile(r"[A-Z]?[a-z]+")
"""A word of a text, or of a name in snake case or camel case."""

IMPORT = re.compile(r"^ *from (admission[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
"""An import of ours, as ruff formats it: the module, then the names, in parentheses or not."""

DEFINED = re.compile(r"^(?=(?:async def|def|class) |@)", re.MULTILINE)
"""Where a definition at the top of a module begins, or a decorator of it."""

TEXTS = {path: path.read_text() for path in SOURCES}


def parts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a module that can be parsed alone, each with the number of lines before it.

    A part ends where the next definition begins. To parse whole modules takes seconds.
    """
    before, part = 0, ""
    for piece in DEFINED.split(text):
        part += piece
        if not piece.startswith("@"):
            yield before, part
            before += part.count("\n")
            part = ""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


NAMES = {_dotted(path) for path in SOURCES}


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules and packages of ours that a module imports, by their full names."""
    for found in IMPORT.finditer(TEXTS[path]):
        words = re.sub(r"#.*", "", found[2] or found[3])
        for name in (word.split()[0] for word in words.split(",") if word.strip()):
            whole = f"{found[1]}.{name}"
            yield whole if whole in NAMES else found[1]


@cache
def _face(package: str) -> list[str] | None:
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(ast.literal_eval(item)) for item in getattr(node.value, "elts", [])]
    return None


def _hidden(path: Path) -> Iterator[str]:
    """Yield the imports that pass by the face of a package that the module is not in."""
    here = _dotted(path)
    for name in _imports(path):
        parts = name.split(".")
        for depth in range(1, len(parts)):
            package = ".".join(parts[:depth])
            is_outside = not (here == package or here.startswith(f"{package}."))
            if is_outside and parts[depth] not in (_face(package) or ()):
                yield f"{name} is not in the __all__ of {package}"


def test_other_packages_are_used_by_their_face() -> None:
    assert {_name(path): hidden for path in SOURCES if (hidden := [*_hidden(path)])} == {}


def test_a_package_has_about_a_dozen_modules() -> None:
    modules = {_name(package): len([*package.glob("*.py")]) - 1 for package in PACKAGES}

    assert {name: count for name, count in modules.items() if count > MOST_MODULES}.keys() == LARGER.keys()


def test_a_package_has_one_job() -> None:
    """Its docstring opens with it, in one sentence that needs no "and"."""
    openings = {
        _name(package): re.split(r"\.(?:\s|$)", ast.get_docstring(ast.parse(TEXTS[package / "__init__.py"])) or "")[0]
        for package in PACKAGES
    }

    assert {name: words for name, words in openings.items() if not words or re.search(r"\band\b", words)} == {}


def test_what_a_package_shows_is_there() -> None:
    missing = [
        f"{_name(package)}: {name}"
        for package in PACKAGES
        for name in _face(_dotted(package / "__init__.py")) or ()
        if not hasattr(importlib.import_module(_dotted(package / "__init__.py")), name)
        and f"{_dotted(package / '__init__.py')}.{name}" not in NAMES
    ]

    assert missing == []


def test_no_module_is_named_by_a_gerund() -> None:
    parts = {part.removesuffix(".py") for path in SOURCES for part in path.relative_to(ROOT).parts}
    words = {word for part in parts for word in part.split("_")}

    assert {word for word in words if word.endswith("ing")} <= NOUNS


def test_no_import_hides_behind_type_checking() -> None:
    hidden = [
        f"{_name(path)}:{node.lineno}"
        for path, text in TEXTS.items()
        if "TYPE_CHECKING" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in node.body
        if "admission" in ast.unparse(inner)
    ]

    assert hidden == []


def test_no_name_is_of_the_private_language() -> None:
    found: set[str] = set()
    for path, part in ((path, part) for path, text in TEXTS.items() for _, part in parts(text)):
        if not _private(part):
            continue
        nodes = [*ast.walk(ast.parse(part))]
        found |= {f"{_name(path)}: {name}" for node in nodes for name in _defined(node) if _private(name)}
        if SHOWN_TO_USERS.isdisjoint(path.parents):
            docstrings = [text for node in nodes if (text := _docstring(node))]
            found |= {f"{_name(path)}: {word}" for text in docstrings for word in _private(text) & PRIVATE_IN_PROSE}

    assert found == set()


@cache
def _private(text: str) -> set[str]:
    """Return the private words of a text or of a name."""
    return set() if text in TERMS_OF_THE_FIELD else PRIVATE_WORDS.intersection(map(str.lower, WORD.findall(text)))


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines: of functions, classes, parameters, variables, attributes and aliases."""
    match node:
        case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case _:
            pass


def _docstring(node: ast.AST) -> str:
    """Return the docstring that a node is, be it of a module, a class, a function or a value; empty if it is none."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
        case _:
            return ""


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_pages_name_modules_that_are_there(page: Path) -> None:
    words = re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)`", page.read_text())
    missing = [word for word in words if not (ROOT / "admission" / word).exists() and not (ROOT / word).exists()]

    assert len(words) > 20
    assert missing == []


def test_the_layers_of_the_page_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one.get("containers") == ["admission"])
    (block,) = re.findall(r"```text\n(cli\n.*?)```", PAGES[0].read_text(), re.DOTALL)

    assert [line.partition("  ")[0].strip() for line in block.splitlines()] == layers
