"""The task tag: `task` is its main module."""
