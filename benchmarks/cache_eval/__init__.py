"""What the cache's levels serve, and how often wrongly: docs/cache-eval.md."""
