"""Runs: training into a run folder, opening one, comparing, averaging and distilling them."""
