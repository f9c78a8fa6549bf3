"""Every package can be imported first, and what is large is imported only where it is needed.

In fresh interpreters, since other tests may have imported it before.
"""

import subprocess
import sys

from tests.architecture.test_shape import MODULES, ROOT
from tests.docs.reference import commands

ALONE = """
import importlib, os, traceback
for library in {libraries!r}:
    importlib.import_module(library)
for name in {names!r}:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""

LIBRARIES = (
    "aiohttp",
    "alembic.context",
    "celpy",
    "cryptography.x509",
    "rich.table",
    "sqlalchemy.ext.asyncio",
    "typer",
)
"""Large ones of others, which take most of the time that our packages take to import."""


def test_every_package_imports_alone() -> None:
    """No import relies on another one of ours having run before it: each is tried in a fork that has none yet."""
    packages = sorted({".".join(path.relative_to(ROOT).with_suffix("").parts[:2]) for path in MODULES})
    names = [name for name in packages if not name.endswith(("__init__", "__main__"))]
    code = ALONE.format(libraries=LIBRARIES, names=names)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert len(names) > 30
    assert (result.returncode, result.stdout, result.stderr[-2000:]) == (0, "", "")


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
