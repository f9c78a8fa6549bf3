"""Every package can be imported first, and what is large is imported only where it is needed.

In a fresh interpreter each, since other tests may have imported it before.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.architecture.test_shape import MODULES, ROOT
from tests.docs.reference import commands


def test_every_package_imports_alone() -> None:
    """No import relies on another one having run before it."""
    packages = sorted({".".join(path.relative_to(ROOT).with_suffix("").parts[:2]) for path in MODULES})
    names = [name for name in packages if not name.endswith(("__init__", "__main__"))]
    code = "import importlib, sys; importlib.import_module(sys.argv[1])"

    def imported(name: str) -> str:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, name], capture_output=True, text=True, check=False, cwd=ROOT
        )
        return result.stderr[-300:] if result.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        failed = {name: error for name, error in zip(names, threads.map(imported, names), strict=True) if error}

    assert failed == {}


LIBRARY = """
from admission.kube.client import client_library
assert client_library.ApiClient is not None
assert client_library.config.load_kube_config
"""


def test_no_model_of_the_client_library_is_loaded() -> None:
    """They take 65 MiB."""
    assert _loaded(LIBRARY, "kubernetes_asyncio.client.models.") == "[]"


HELP = """
from contextlib import redirect_stdout, suppress
from io import StringIO
from admission import cli
for words in {words!r}:
    with suppress(SystemExit), redirect_stdout(StringIO()):
        cli.app(words.split())
"""


def test_no_help_imports_a_command() -> None:
    """It takes 0.1 s of processor time; with its modules that of `ledger` took 2.7 s, that of `gang` 1.1 s."""
    words = [f"{one.name.partition(' ')[2]} --help" for one in commands.every()]

    assert len(words) > 30
    assert _light(HELP.format(words=words))


COMPLETION = """
import os
from contextlib import redirect_stdout, suppress
from io import StringIO
from admission import cli
for words in ("muster que", "muster queue st", "muster gang list --name", "muster gang list -o "):
    os.environ.update(_MUSTER_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    with suppress(SystemExit), redirect_stdout(StringIO()) as told:
        cli.app(prog_name="muster")
    assert told.getvalue(), words
"""


def test_completion_of_commands_options_and_known_values_imports_no_command() -> None:
    assert _light(COMPLETION)


def _light(code: str) -> bool:
    heavy = ("admission.kube", "admission.cli.", "sqlalchemy", "kubernetes_asyncio", "aiohttp", "celpy", "pydantic")
    return _loaded(code, heavy) == "['admission.cli.apps', 'admission.cli.outline']"


def test_a_webhook_loads_nothing_of_the_controller() -> None:
    """It has further processes and replicas, and the ledger's libraries would double the start and memory of each."""
    prefixes = ("admission.ledger", "admission.controller", "sqlalchemy", "alembic")

    assert _loaded("import admission.app", prefixes) == "[]"


def test_without_traces_opentelemetry_is_not_loaded() -> None:
    assert _loaded("import admission.app", "opentelemetry") == "[]"


def _loaded(code: str, prefix: str | tuple[str, ...]) -> str:
    """Return the list of modules of a prefix that are loaded after some code."""
    told = f"import sys\n{code}\nprint([name for name in sys.modules if name.startswith({prefix!r})])"
    result = subprocess.run([sys.executable, "-W", "error", "-c", told], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.strip()
