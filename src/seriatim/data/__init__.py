"""Readers, tokenizers, splits, token shards on disk, the catalogue of data sets and the data doctor."""
