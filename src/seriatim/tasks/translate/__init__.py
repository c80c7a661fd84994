"""The task translate: `task` is its main module."""
