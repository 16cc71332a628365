"""From flushed events to the streams of those who read them: one timer, one writer per stream, no task per generation."""
