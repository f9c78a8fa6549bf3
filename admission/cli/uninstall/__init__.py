"""`muster uninstall`: the removal of all by which Muster acts on others."""
