"""The path of data: sources, formats, schemas, data sets, splits, checks; tokenizers, images, series. No torch."""
