"""One architecture, one file. A file added here (or named by `--plugin`) is a model in every task that fits it."""
