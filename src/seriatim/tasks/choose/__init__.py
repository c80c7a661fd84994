"""The task choose: `task` is its main module."""
