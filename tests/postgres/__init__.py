"""A real PostgreSQL on this machine, for the ledger's tests and benchmarks.

Its programs are the system's (module `programs`; `make deps` installs Debian's package); the server (module `serving`)
is made by `initdb` for each run, in a folder and on a port of its own, and ends with the Python that started it.
"""

from tests.postgres import programs
from tests.postgres.programs import ProgramsMissing
from tests.postgres.serving import Server, StartFailed, query

__all__ = ["ProgramsMissing", "Server", "StartFailed", "programs", "query"]
