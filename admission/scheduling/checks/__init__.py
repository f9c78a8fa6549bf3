"""The chain of checks that admits or holds a gang."""
