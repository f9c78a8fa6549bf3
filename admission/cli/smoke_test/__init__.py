"""The command `muster smoke-test`, which has an installation admit a gang without devices."""
