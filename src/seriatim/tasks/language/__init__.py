"""The task language: `task` is its main module."""
