"""The two example worlds of the engine: played as documented, and restored exactly."""
