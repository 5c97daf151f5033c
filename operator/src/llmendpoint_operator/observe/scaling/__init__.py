"""The inputs of scaling (demand, load, first tokens, breakers), and the reports to outside scalers."""
