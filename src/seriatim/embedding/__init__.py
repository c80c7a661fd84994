"""Embeddings: vectors of texts and of words in context, of any network that reads text.

    text   pool_t h_t               mean, max, last, or cls: the output of [CLS], which stands for the whole text
    word   mean of h_t over its tokens: its meaning in this sentence
           mean of its rows of the embedding table: the same in every sentence

All elements that the network reads are pooled, [CLS] and [SEP] included, except a prefix such as the line end before
the text of a language model. A text has the same vector alone and in a batch. A text that is longer than the network
accepts is truncated.
"""
