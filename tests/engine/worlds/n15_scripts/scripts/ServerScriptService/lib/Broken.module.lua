error("broken on purpose")
