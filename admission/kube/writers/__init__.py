"""What Muster writes to the API server, one module for each kind of object."""
