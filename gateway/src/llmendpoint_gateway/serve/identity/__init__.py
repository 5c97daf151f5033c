"""Who may write to this gateway."""
