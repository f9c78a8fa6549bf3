"""The layout keeps what docs/architecture.md says: packages with one job and a face, and names of the field."""

import ast
import importlib
import re
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
}
"""Words in -ing that are nouns of their field."""


PRIVATE_WORDS = set(
    re.findall(
        r"\w+",
        """
        alike alikes allotment allotting anew appraisal appraising aside asking assuming awaited away board boards
        breaching card carrying census chooser claiming crew deck desk displaced doors doubt doubting emptied entering
        entitlements entrance expecting families flaw flaws foretelling gathering giving guarding heeding hired hopes
        hosting imagined judging kinship lack landing lending lineage lingering lining making meeting mend mended
        namesakes objected ousting outbox outlook pasts pauses paying placer promise promised purse quirks reaching
        realm recall recalling reclaiming regained rehearsing remembering reserving resting retelling rooms sacrifice
        scenes shelf shelving sight sights spot standing stay stepping stir stock strays succeeding sweep taking tell
        tenancy tenants tenure thinning told town trait traps understudy untold upkeep vaults vetting visit waking
        wanting ward world worlds
        """,
    )
)
"""What the code called things before its names were the field's."""

TERMS_OF_THE_FIELD = {"lending", "lending_limit", "promised"}
"""Names with such a word that Kueue, or a spec or status of Muster, has."""

DEFINITION = re.compile(
    r"(?:def|class) (\w+)[(:\[]|(?:\)|import \w+) as (\w+)|for (\w+)(?:, \w+)* in "
    r"|^ *(?:self\.)?(\w+)(?:, \w+)*(?:: [^=\n]+)? = |[(*] ?(\w+): [\w\"]+[,)\[ ]|, (\w+): \w+[,)\[.]",
    re.MULTILINE,
)
"""A function or class, an alias, a variable or attribute, a parameter."""

IMPORT = re.compile(r"^ *from (admission[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
"""An import of ours, as ruff formats it: the module, then the names, in parentheses or not."""

TEXTS = {path: path.read_text() for path in SOURCES}


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
    found = {
        f"{_name(path)}: {name}"
        for path, text in TEXTS.items()
        for name in _defined(text)
        if PRIVATE_WORDS & set(name.strip("_").split("_")) and name not in TERMS_OF_THE_FIELD
    }

    assert found == set()


def _defined(text: str) -> set[str]:
    """Return the names that a module defines, in snake case."""
    names = {name for groups in DEFINITION.findall(text) for name in groups if name}
    return {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() for name in names}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_pages_name_modules_that_are_there(page: Path) -> None:
    words = re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)`", page.read_text())
    missing = [word for word in words if not (ROOT / "admission" / word).exists() and not (ROOT / word).exists()]

    assert len(words) > 20
    assert missing == []
