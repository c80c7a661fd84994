"""Text, tokenizers, prepared corpora, the catalogue of data sets and the data doctor. Nothing here imports torch."""
