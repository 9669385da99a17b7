"""The residual streams, and what is looked up for them: embeddings, n-grams."""
