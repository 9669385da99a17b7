"""Model files: opening, configuration, named weights, tokenizer, chat template.

    files = open_model("model.gguf")            # strata.model.files
    config = read_config(files)                 # strata.model.config_reader
    weights = load_weights(files, config)       # strata.model.weights_loader

This package imports nothing here, so that a command's help stays fast.
"""
