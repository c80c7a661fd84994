"""The task music: `task` is its main module."""
