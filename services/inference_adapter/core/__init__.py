"""Pure decisions of the inference-adapter."""
