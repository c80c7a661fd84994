"""Look inside a network: attention, gates, gradients, surprise and more."""
