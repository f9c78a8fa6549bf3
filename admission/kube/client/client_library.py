"""The parts of kubernetes-asyncio that Muster uses: credentials, TLS, and the REST client. Nothing else is loaded.

The library's packages import some 2000 classes of models and APIs when they are first touched: 65 MiB and more than a
second, for a program that reads raw JSON. So the packages are put in place without running their `__init__`, and the
four modules that are needed are imported from them. Should a later version arrange its modules otherwise, the imports
below fail at once, in every test of this package.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any


def _bare(name: str) -> ModuleType:
    """Return a package of the library whose modules can be imported, but whose own code has not run."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)
    return package


_bare("kubernetes_asyncio")
_client = _bare("kubernetes_asyncio.client")
_bare("kubernetes_asyncio.client.models")

Configuration: Any = importlib.import_module("kubernetes_asyncio.client.configuration").Configuration
ApiClient: Any = importlib.import_module("kubernetes_asyncio.client.api_client").ApiClient

# The library's own modules take these from the package.
_client.Configuration, _client.ApiClient = Configuration, ApiClient  # type: ignore[attr-defined]

config: Any = importlib.import_module("kubernetes_asyncio.config")
