"""The small parts that architectures are made of."""
