"""The task forecast: `task` is its main module."""
