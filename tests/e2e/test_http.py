"""Hostile and ordinary clients against tests/http_toy.c (see TOKEND_HTTP_TOY)."""
