"""The router's I/O around its core: registry, dispatch, books, cache, streams."""
