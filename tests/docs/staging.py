"""Makes the source of the site from the repository: its pages, and every file that a page leads to.

The pages link to each other as code hosts need it, and to files beside them: examples, manifests, the chart. The site
has to work without a network, so such a file becomes a page of its own that shows it, and a folder one that lists it.
Links are written anew for where the pages stand in the site, and pictures that others serve are
replaced by their words.
"""

import os
import re
import shutil
from pathlib import Path

from tests.docs import pages

STAGED = pages.ROOT / "dist" / "docs"
ELSEWHERE = Path("repository")
"""The folder of the site for what stands outside `docs`."""

LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".sql": "sql"}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
PICTURE = re.compile(r"!\[([^\]]*)\]\(https?://[^)]*\)")
FENCED = re.compile(r"(^ *```.*?^ *```+ *$)", re.MULTILINE | re.DOTALL)
ATTRIBUTES = re.compile(r"^( *```+[\w-]*)[^\n]*")


class NoSuchFile(Exception):  # noqa: N818 - named by what happened
    """A page leads to a file that is not there."""


def stage(folder: Path = STAGED) -> int:
    """Write the source of the site into an empty folder, and return the number of its pages."""
    shutil.rmtree(folder, ignore_errors=True)
    waiting = [path.relative_to(pages.ROOT) for path in sorted(pages.DOCS.rglob("*.md"))]
    done: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        text, leads = _page(path)
        target = folder / _place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        waiting += leads
    return len(done)


def _place(path: Path) -> Path:
    """Return where a file or folder of the repository stands in the site."""
    if path.is_relative_to("docs"):
        return path.relative_to("docs")
    if (pages.ROOT / path).is_dir():
        return ELSEWHERE / path / "index.md"
    return ELSEWHERE / (path if path.suffix == ".md" else path.with_name(f"{path.name}.md"))


def _page(path: Path) -> tuple[str, list[Path]]:
    """Return the page for a file or folder, and what it leads to."""
    source = pages.ROOT / path
    if source.is_dir():
        children = [path / child.name for child in sorted(source.iterdir()) if _is_shown(child)]
        listed = (f"- [{child.name}]({os.path.relpath(_place(child), _place(path).parent)})" for child in children)
        return "\n".join([f"# {path}", "", *listed, ""]), children
    if source.suffix != ".md":
        fence = "`" * 5
        return f"# {path}\n\n{fence}{LANGUAGES.get(source.suffix, '')}\n{source.read_text()}{fence}\n", []
    return rewritten(path, source.read_text())


def _is_shown(path: Path) -> bool:
    return not path.name.startswith((".", "_"))


def rewritten(path: Path, text: str) -> tuple[str, list[Path]]:
    """Return a page with its links written anew and its fences plain, and what it leads to."""
    leads: list[Path] = []

    def link(found: re.Match[str]) -> str:
        target, mark, heading = found[2].partition("#")
        if ":" in target or not target:
            return found[0]
        led = Path(os.path.normpath(path.parent / target))
        if not (pages.ROOT / led).exists():
            raise NoSuchFile(f"{path} leads to {found[2]}, which is not there")
        leads.append(led)
        return f"{found[1]}{os.path.relpath(_place(led), _place(path).parent)}{mark}{heading}{found[3]}"

    parts = FENCED.split(text)
    parts[::2] = [LINK.sub(link, PICTURE.sub(r"\1", part)) for part in parts[::2]]
    parts[1::2] = [ATTRIBUTES.sub(r"\1", part, count=1) for part in parts[1::2]]
    return "".join(parts), leads
