"""Zero configuration: a recipe chosen from the data, and every choice said aloud. One file for each kind of data."""
