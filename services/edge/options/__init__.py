"""The edge's settings by what they are about; `services.edge.settings` puts them together."""
