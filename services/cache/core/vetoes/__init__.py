"""The rules by which a similar question is refused all the same: `chain.Chain` asks one module per rule."""
