"""The explorer: a page to look into a model, and the server behind it."""
