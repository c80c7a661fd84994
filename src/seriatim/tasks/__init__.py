"""One task, one file: examples → batches → loss (sum and count) → measures → predictions."""
