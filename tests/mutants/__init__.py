"""Small faults planted one at a time in the packages that decide: do the unit and property tests notice them?

cosmic-ray makes the mutants. Each is tested in a copy of the tree, in a forked process, by the tests that run the
mutated line, as coverage recorded them. `python -m tests.mutants --help` lists the options.
"""
