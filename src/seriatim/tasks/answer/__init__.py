"""The task answer: `task` is its main module."""
