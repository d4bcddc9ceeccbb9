"""Fleets with servers: `distribute_transpiler`; and `pslib`, whose servers are closed source."""
