"""The local store of what the API server's watches deliver."""
