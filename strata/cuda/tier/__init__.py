"""Experts that do not all lie on the card: cache, dispatch, fetches over PCIe, meetings with the CPU pool."""
