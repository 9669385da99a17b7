"""The gated delta net: convolution, gates, scans of windows and of prompt chunks."""
