"""`muster uninstall`: the removal of everything in a cluster by which Muster affects other objects."""
