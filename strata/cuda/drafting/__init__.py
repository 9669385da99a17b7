"""The draft layer on the card of the last stage."""
