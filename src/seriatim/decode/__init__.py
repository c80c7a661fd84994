"""Decoding: greedy, sampling and beam search, as functions over a step of any model."""
