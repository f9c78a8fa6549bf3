"""Only what is needed of kubernetes-asyncio is loaded."""

import subprocess
import sys

CODE = """
import sys
from admission.kube.client import client_library
assert client_library.ApiClient is not None
assert client_library.config.load_kube_config
loaded = [name for name in sys.modules if name.startswith("kubernetes_asyncio.client.models.")]
print(len(loaded))
"""


def test_no_model_of_the_library_is_loaded() -> None:
    """They take 65 MiB. A fresh interpreter, since other tests may have loaded them."""
    result = subprocess.run([sys.executable, "-W", "error", "-c", CODE], capture_output=True, text=True, check=False)

    assert (result.stdout.strip(), result.stderr) == ("0", "")
