"""Who may tell this gateway something."""
