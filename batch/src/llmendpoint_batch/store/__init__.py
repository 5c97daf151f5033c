"""SQLite and the folder of files: the only state that outlives the process."""
