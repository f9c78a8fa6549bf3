"""The parts of kubernetes-asyncio that Muster uses: credentials, TLS, and the REST client.

The library's packages import some 2000 classes of models and APIs in their `__init__`: 65 MiB and more than a second,
for a program that reads raw JSON. So the packages are created without running their `__init__`, and only the needed
modules are imported from them. If a later version moves its modules, the imports below fail in every test of this
package.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any


def _bare(name: str) -> ModuleType:
    """Return a package of the library without running its `__init__`; its modules can be imported."""
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

# The library's own modules import these from the package.
_client.Configuration, _client.ApiClient = Configuration, ApiClient  # type: ignore[attr-defined]

config: Any = importlib.import_module("kubernetes_asyncio.config")
