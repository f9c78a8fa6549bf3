"""Who may see what on the dashboard."""
