"""`python -m tests.docs`: writes the source of the site into dist/docs, from which `make docs` builds it."""

from tests.docs import staging

print(f"{staging.stage()} pages are in {staging.STAGED}")
