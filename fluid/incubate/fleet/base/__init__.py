"""Role makers and the base classes of fleets."""
