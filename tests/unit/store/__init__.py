"""The tables and the store below them."""
