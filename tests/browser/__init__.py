"""A real browser for the dashboard's tests: Debian's chromium, driven by Playwright for Python.

Playwright would download a browser of its own; ours comes from the system (`make deps`), so that no test needs more of
the network than a package registry.
"""

from tests.browser.programs import ProgramMissing, install, path

__all__ = ["ProgramMissing", "install", "path"]
