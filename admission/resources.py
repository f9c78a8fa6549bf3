"""Where the files are that Muster reads at run time: migrations and config.

In a checkout they stand beside the package; a wheel carries them inside it, under `_shipped` (pyproject.toml,
force-include). The shipped ones come first: what stands beside an installed package is another project's.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def migrations() -> Path:
    """Return the folder of the ledger's alembic scripts."""
    return _folder("migrations")


def config() -> Path:
    """Return the folder of the default settings, the CRDs and the example objects."""
    return _folder("config")


def _folder(name: str) -> Path:
    for place in (_PACKAGE / "_shipped", _PACKAGE.parent):
        folder = place / name
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the folder {name!r} is neither in {_PACKAGE / '_shipped'} nor in {_PACKAGE.parent}")
