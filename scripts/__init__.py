"""What `make` runs beside the services. Programs, and modules that tests and other programs import."""
