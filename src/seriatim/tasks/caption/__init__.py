"""The task caption: `task` is its main module."""
