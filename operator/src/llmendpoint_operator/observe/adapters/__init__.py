"""Which adapters each pod has, and loading and letting go of them."""
