"""A stage on a card: its sessions, and windows recorded, replayed, observed."""
