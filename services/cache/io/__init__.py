"""What the cache does outside its memory."""
