"""What the supervisor does to the machine: processes, ports, files, health checks."""
