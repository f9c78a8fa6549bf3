"""The devices of a node as the dashboard shows them."""
