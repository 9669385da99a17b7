"""A card and its memory, and kernels on their way to it: compiled, kept on disk, loaded, launched, captured."""
