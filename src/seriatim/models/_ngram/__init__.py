"""Parts of the n-gram model: counts, and ARPA files."""
