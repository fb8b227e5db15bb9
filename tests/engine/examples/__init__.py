"""The two example worlds of the engine: played by their own documents, and restored exactly."""
