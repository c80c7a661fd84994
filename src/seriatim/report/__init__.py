"""Charts as values, and the pages and model cards that are made from the files of a run."""
