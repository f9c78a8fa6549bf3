"""Templates and assets, read once at the start, so that rendering a page needs no disk access."""

import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from admission.dashboard import formatting, pagination, view_model
from admission.dashboard.devices import diagram
from admission.errors import FixError

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages refer to.

    digest: of its content; it is a part of its address, so that browsers may cache it.
    """

    content: bytes
    kind: str
    digest: str


class Templates:
    """All templates, compiled, and all assets. The constructor reads files, so it belongs in a thread."""

    def __init__(self) -> None:
        try:
            import jinja2  # noqa: PLC0415 - an optional dependency
        except ImportError as error:
            raise FixError(
                "the dashboard needs Jinja2: install Muster with its extra dashboard, as docs/install.md tells"
            ) from error
        self.assets = {path.name: _asset(path) for path in sorted((_FOLDER / "static").iterdir()) if path.is_file()}
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            extensions=["jinja2.ext.loopcontrols"],
        )
        environment.filters |= {
            "amount": formatting.amount,
            "charge": formatting.charge,
            "cut": diagram.cut,
            "hours": formatting.hours,
            "instant": formatting.instant,
            "moment": formatting.moment,
            "segment": formatting.segment,
            "span": formatting.span,
        }
        environment.globals |= {
            "between": formatting.between,
            "changed": pagination.changed,
            "asset": self._address,
            "charge_or_needed": view_model.charge_or_needed,
            "held_since": view_model.held_since,
            "state_of": view_model.state,
            "who": diagram.holder_name,
        }
        self._templates = {name: environment.get_template(name) for name in environment.list_templates()}

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Return a page. Values are escaped."""
        return self._templates[name].render(values)

    def _address(self, name: str) -> str:
        return f"/static/{name}?v={self.assets[name].digest}"


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Asset(content, kind, hashlib.sha256(content).hexdigest()[:16])
