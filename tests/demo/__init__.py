"""`make demo`: the whole product on this machine, from nothing to a streamed answer. `python -m tests.demo --help`."""
