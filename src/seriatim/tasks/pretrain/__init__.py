"""The task pretrain: `task` is its main module."""
