"""What the number of replicas depends on: demand, load, first tokens and breakers; and what a scaler outside is told."""
