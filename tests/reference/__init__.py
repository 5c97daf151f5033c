"""The parts of docs/reference that are made from the code: `make reference` writes them, `make lint` compares them."""
