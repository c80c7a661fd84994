"""The building blocks of architectures: layers, inputs, heads, losses, traces."""
