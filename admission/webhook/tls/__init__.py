"""The serving certificates of the webhook."""
