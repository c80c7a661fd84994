"""Greedy, sampling and beam search: pure functions over a step, which know nothing about models."""
