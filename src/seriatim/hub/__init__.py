"""To and from the format of `transformers`: a folder with config.json, weights and a tokenizer.

What a model's tensors are called there stands in the model's own file (`HUB`); `transformers` itself is not needed.
"""
