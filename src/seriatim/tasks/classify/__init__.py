"""The task classify: `task` is its main module."""
