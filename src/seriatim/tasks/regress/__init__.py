"""The task regress: `task` is its main module."""
