"""Model files: the hub's commit, the Jobs that download, and the deletion of unused files."""
