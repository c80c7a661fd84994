"""Parts of the n-gram model: counts, tables, mixtures and ARPA files."""
