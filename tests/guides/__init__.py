"""The pages of docs/guides, as a test reads and runs them: page.py parses, script.py makes one bash script of a page and
compares what it printed, table.py says what a test writes in place of a user's own names."""
