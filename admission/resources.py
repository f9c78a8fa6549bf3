"""Where the files are that Muster reads at run time: migrations, config and the manifests that install it.

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


def manifests() -> Path:
    """Return the folder of the manifests that are rendered from the Helm chart."""
    return _folder("manifests", "deploy/manifests")


def _folder(name: str, in_checkout: str = "") -> Path:
    for folder in (_PACKAGE / "_shipped" / name, _PACKAGE.parent / (in_checkout or name)):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the folder {name!r} is neither in {_PACKAGE / '_shipped'} nor in {_PACKAGE.parent}")
