"""The edge: ends client connections and reads generations for them. It knows clients, and nothing of engines."""
