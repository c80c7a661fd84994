"""To and from the format of `transformers`: a folder with config.json, weights and a tokenizer.

`mappings/` declares which of its tensors are which of ours; `transformers` itself is not needed.
"""
